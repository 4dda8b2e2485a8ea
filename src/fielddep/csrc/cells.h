// Cells of a combination of fields: how often training rows have each joint value, and the sums of their targets.
//
// The rows of one cell and one fold are a group. All of them are told the same: what the rows of the cell in other folds
// did, or in earlier folds. So an entry needs no more than the number of its group, and logarithms are taken once a
// group. Sums are whole multiples of a power of two, exact in any order.
//
// Entries are first divided into buckets by a hash of their keys, so that the cells of a bucket stay in cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fielddep {

enum class Task { binary, multiclass, regression };

// What is counted. An entry is a row, or a value of the list of a row.
struct Entries {
    std::vector<const int32_t*> columns;  // ids of each field
    std::vector<int64_t> n_ids;
    int64_t n_entries, n_rows;
    const int64_t* rows;  // of each entry; null: entry and row are the same
    // Of each row:
    const uint16_t* folds;  // n_folds if it is no training row
    int64_t n_folds;
    const double* weights;   // null: one each
    const double* amounts;   // what it adds to the sum of its cell, or of its class in the cell
    const int32_t* classes;  // null: there is one output
    int64_t n_outputs;
    bool in_order;    // whether a row may only know earlier folds
    double min_rows;  // fewer say nothing

    int64_t row(int64_t entry) const { return rows ? rows[entry] : entry; }
    double weight(int64_t row) const { return weights ? weights[row] : 1.0; }
};

// How sums become statements: see `encoding/evidence.py`, whose operations these repeat one by one.
struct Saying {
    Task task;
    double prior;
    std::vector<double> shares;     // base rate times prior, of each output
    std::vector<double> base;       // base rate
    std::vector<double> base_odds;  // its log-odds; two classes only

    Saying(Task task, double prior, const double* base, int64_t n_outputs);
    double says(double n, double s, int64_t output) const;
};

// Memory without a first value. Large blocks ask for large pages, because entries go to a thousand buckets at a time, and
// wait for the next count of the same thread: the system would clear fresh ones.
void* take_memory(size_t n_bytes);
void leave_memory(void* memory, size_t n_bytes) noexcept;

struct Leave {
    size_t n_bytes = 0;
    void operator()(void* memory) const noexcept { leave_memory(memory, n_bytes); }
};
template <class T>
using Memory = std::unique_ptr<T[], Leave>;
template <class T>
Memory<T> memory_for(int64_t size) {
    const size_t n_bytes = size_t(size) * sizeof(T);
    return Memory<T>(static_cast<T*>(take_memory(n_bytes)), Leave{n_bytes});
}

struct Half {
    uint16_t bits;
};

// Where statements go: double, float or Half, (entries, outputs + 1) with any steps.
template <class Out>
struct Target {
    Out* start;
    int64_t row_step, column_step;

    Out* at(int64_t row) const { return start + row * row_step; }
};

class Count {
   public:
    // Cells with enough training rows, their keys ascending.
    std::vector<int64_t> keys;
    std::vector<double> n, s;

    explicit Count(Entries given);

    // Sums of losses on about `most` training entries, for each prior; targets are those of the rows.
    std::vector<double> losses(Task task, const std::vector<double>& priors, const double* base, const float* targets,
                               int64_t most) const;

    // What every entry is told.
    template <class Out>
    void statements(const Saying& saying, Target<Out> out) const;

    int64_t n_entries() const { return entries_.n_entries; }
    int64_t n_rows() const { return entries_.n_rows; }
    int64_t n_outputs() const { return entries_.n_outputs; }

   private:
    Entries entries_;
    int64_t n_train_ = 0;
    std::vector<int64_t> starts_;        // first entry of each bucket, and the end
    std::vector<int64_t> group_starts_;  // first group of each bucket, and the end
    Memory<uint16_t> bucket_of_;         // of each entry; null: there is one bucket
    Memory<int32_t> group_of_;           // of each entry, bucket by bucket
    Memory<double> told_n_, told_s_;     // of each group

    void count_directly();
    void count_buckets(int bits);
    void sort_cells();
    template <class Take>
    void in_order_of_entries(Take take) const;
};

constexpr int64_t kMostFields = 4;

// The cells of several combinations, one combination after the other.
struct CellTable {
    int64_t n_combinations, n_outputs;
    // Of each combination:
    const int32_t* fields;  // columns of its fields, kMostFields; -1: no more
    const int64_t* n_ids;   // ids of each of them
    const double* priors;
    const int64_t* starts;  // its first cell, and the end of all
    // Of each cell; keys ascend within a combination:
    const int64_t* keys;
    const double *n, *s;
};

// What cells say about rows, given their ids (rows, columns): the statements of one combination after the other.
template <class Out>
void say_cells(const CellTable& table, Task task, const double* base, const int32_t* ids, int64_t n_rows,
               int64_t n_columns, Target<Out> out);

}  // namespace fielddep
