#include "lookup.h"

#include "kernels.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace fielddep {
namespace {

// Open addressing in a table that stays in cache, however many ids there are.
// All its memory is taken at the start: threads find the ids, and no exception can leave them.
struct Distinct {
    std::vector<int64_t> ids;
    std::vector<float> counts;
    std::vector<int32_t> places;

    explicit Distinct(int64_t n_rows) {
        int64_t size = 16;
        while (size < 2 * n_rows) size *= 2;
        places.assign(size, -1);
        ids.reserve(n_rows);
        counts.reserve(n_rows);
    }

    void find(const int64_t* column, int64_t step, int64_t n_rows, int32_t* slots) {
        const int64_t size = int64_t(places.size());
        for (int64_t row = 0; row < n_rows; ++row) {
            const int64_t id = column[row * step];
            uint64_t at = (uint64_t(id) * 0x9E3779B97F4A7C15ull >> 20) & uint64_t(size - 1);
            while (places[at] >= 0 && ids[places[at]] != id) at = (at + 1) & uint64_t(size - 1);
            if (places[at] < 0) {
                places[at] = int32_t(ids.size());
                ids.push_back(id);
                counts.push_back(0);
            }
            slots[row] = places[at];
            counts[places[at]] += 1;
        }
    }
};

}  // namespace

Lookup::Lookup(const int64_t* given, int64_t rows, int64_t columns, int64_t all_ids, int64_t n_threads)
    : n_rows(rows), n_columns(columns), n_ids(all_ids), slot_of_row(rows * columns), starts(columns + 1, 0) {
    for (int64_t i = 0; i < rows * columns; ++i)
        if (given[i] < 0 || given[i] >= n_ids)
            throw std::out_of_range("ids must be from 0 to " + std::to_string(n_ids - 1) + "; given " +
                                    std::to_string(given[i]));
    std::vector<Distinct> found;
    found.reserve(columns);
    for (int64_t f = 0; f < columns; ++f) found.emplace_back(rows);
    const bool alone = rows * columns < kWorthThreads;
#pragma omp parallel for num_threads(alone ? 1 : n_threads) schedule(dynamic, 1)
    for (int64_t f = 0; f < columns; ++f) found[f].find(given + f, columns, rows, slot_of_row.data() + f * rows);
    for (int64_t f = 0; f < columns; ++f) starts[f + 1] = starts[f] + int64_t(found[f].ids.size());
    ids.resize(starts[columns]);
    counts.resize(starts[columns]);
    for (int64_t f = 0; f < columns; ++f) {
        std::copy(found[f].ids.begin(), found[f].ids.end(), ids.begin() + starts[f]);
        std::copy(found[f].counts.begin(), found[f].counts.end(), counts.begin() + starts[f]);
    }
}

}  // namespace fielddep
