// The distinct ids of a batch.
#pragma once

#include <cstdint>
#include <vector>

namespace fielddep {

// Distinct ids of every column, one column after another, and where every row finds its own.
//
// Columns own disjoint ranges of ids, so these are the distinct ids of the batch. Slots are numbered in the order of
// first appearance: the result depends on the batch alone.
struct Lookup {
    Lookup(const int64_t* ids, int64_t n_rows, int64_t n_columns, int64_t n_ids, int64_t n_threads);

    int64_t n_rows, n_columns, n_ids;
    std::vector<int32_t> slot_of_row;  // (columns, rows), counted within the column
    std::vector<int64_t> starts;       // first slot of every column; one more at the end
    std::vector<int64_t> ids;
    std::vector<float> counts;
};

}  // namespace fielddep
