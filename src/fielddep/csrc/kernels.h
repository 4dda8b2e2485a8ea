// What the kernels exchange with the bindings: plain structs, and one table of functions per instruction set.
//
// kernels.cpp and what it includes are compiled once per instruction set, each time into a namespace of its own;
// `choose_kernels` picks the best set that this processor has. Nothing in there may use a template of the standard
// library: the linker would keep one copy of it, perhaps the one for a newer processor. And nothing may allocate memory
// inside a parallel region, which no exception can leave.
//
// Names: B rows, F columns of ids (fields, then crosses), m fields, k embedding size, kp = k rounded up to eight.
#pragma once

#include <cstdint>

namespace fielddep {

constexpr int64_t kVector = 8;  // floats of a row are padded to full vectors of this many
constexpr int64_t kRowBlock = 64;

// Inlined everywhere, so that no copy compiled for a newer processor is left for the linker to choose.
#define FIELDDEP_INLINE inline __attribute__((always_inline))

FIELDDEP_INLINE int64_t padded(int64_t n) { return (n + kVector - 1) / kVector * kVector; }

// T label-free steps on (W, mu) of every row; see refine.h.
struct Refinement {
    int64_t n_fields, d_embed, n_steps;
    float w_rate, mu_rate, total, mu_start, value_scale;
    bool gram_form, mu_from_old, with_diagonal;
    bool unit_norm;  // the embeddings of a row are divided by the root of the norm of S, which is not differentiated
    float mean_norm;  // above zero: divided by the root of the mean of that norm and this one
};

// One column of ids in a batch: its distinct values have slots start ... start + n_slots.
struct Column {
    int64_t start, n_slots;
    const int32_t* slot_of_row;  // counted within the column
    const float* scale;          // number of every row, `scale_stride` apart; null for a categorical field
    int64_t scale_stride;
};

// A guest of a host: the pair (host, guest) has its matrix applied on the host's side.
struct Guest {
    int64_t pair, field;
    bool guest_is_second;  // of the pair (i, j), i < j
    int64_t cells;         // where the table of this pair starts, see `Host`
};

// A field that has its distinct values multiplied by the pair matrices it shares with its guests.
//
// The first `n_rowwise` guests are met row by row; with the others, both fields have so few distinct values that the
// product of every two of them is computed once. A host by row has values that hardly repeat: its rows are multiplied
// in blocks that stay in cache.
struct Host {
    int64_t field;
    bool by_row;
    const Guest* guests;
    int64_t n_guests, n_rowwise;
    int64_t width;    // floats of a slot in `applied`: n_guests * kp
    int64_t applied;  // where its slots start in `applied`
    int64_t packed;   // where its matrices start in `packed`, (k, width), and transposed (width, kp)
};

struct Plan {
    int64_t n_rows, n_columns, d_embed, n_pairs, n_threads;
    int64_t n_shares;  // of the rows in the backward pass, each with sums of its own
    bool few_rows;     // too few to be worth packing matrices: products straight from phi
    const Column* columns;
    const Host* hosts;  // one per column
    int64_t n_slots;    // of all columns
    int64_t applied_size, packed_size, packed_t_size, cells_size, widest;
    int64_t inputs_width, n_known;     // floats of a row of the network's input, and where embeddings start in it
    const Refinement* refinement;      // null without dependencies
    FIELDDEP_INLINE int64_t kp() const { return padded(d_embed); }
    FIELDDEP_INLINE int64_t row_size() const { return n_columns * kp(); }
};

// Buffers of a batch that the backward pass needs again.
struct Forward {
    float *values, *e, *applied, *packed, *cells;
};

struct Backward {
    float *d_values, *d_e, *packed_t;
    float *d_applied, *d_cells, *d_packed, *d_w0;  // one copy a share of the rows
};

constexpr int64_t kMostLayers = 16;
constexpr int64_t kRowsOfThread = 512;  // of a network like this: fewer are not worth waking a thread

// A network with gates on its inputs and a linear way past it; see mlp.h. Layer n_hidden gives the outputs.
struct Mlp {
    int64_t n_rows, n_inputs, n_outputs, n_hidden, n_threads;
    int64_t n_dropped;  // of the 256 values of a random byte, those that set a hidden entry to zero
    uint64_t seed;
    int64_t widths[kMostLayers];
    const float* weights[kMostLayers + 1];  // (outputs, inputs) of every layer
    const float* biases[kMostLayers + 1];
    const float *inputs, *gate, *linear;
};

// Entries of all hidden layers of a row.
FIELDDEP_INLINE int64_t hidden_width(const Mlp& x) {
    int64_t total = 0;
    for (int64_t layer = 0; layer < x.n_hidden; ++layer) total += x.widths[layer];
    return total;
}

struct MlpGradients {
    float* weights[kMostLayers + 1];
    float* biases[kMostLayers + 1];
    float *gate, *linear;
    float* inputs;  // of the last inputs only
    int64_t n_inputs;
};

// Quantiles of numbers, one row a field.
struct Intervals {
    int64_t n_measured, n_intervals;
    bool with_shares;
    float share_size, soft_limit;
    const float *low, *width, *rank, *first_rank;
};

struct Rule {
    float lr, shrink, ridge, epsilon, beta_mean, beta_square;
};

// Rows of a table that a step moves; `ids` null means rows 0 ... n.
struct Rows {
    const int64_t* ids;
    const float* counts;  // weight of the ridge; null for none
    int64_t n, d;
};

struct Kernels {
    const char* name;
    void (*input_forward)(const Plan&, const float* phi, const float* w0, Forward&, float* inputs);
    void (*input_backward)(const Plan&, const float* w0, const Forward&, Backward&, const float* d_inputs,
                           float* d_values, float* d_phi, float* d_w0);
    void (*refine_forward)(const Refinement&, int64_t n_threads, const float* e, int64_t n_rows, const float* w0,
                           float* w, float* mu, float* q);
    void (*refine_backward)(const Refinement&, int64_t n_threads, const float* e, int64_t n_rows, const float* w0,
                            const float* d_w, const float* d_mu, const float* d_q, float* d_e, float* d_w0);
    void (*sum_columns)(const Plan&, const float* values, int64_t d, float* out);
    void (*back_sum_columns)(const Plan&, const float* d_out, int64_t d, float* d_values);
    void (*adagrad)(const Rule&, const Rows&, int64_t n_threads, const float* gradient, float* weight, float* sum);
    void (*adam)(const Rule&, const Rows&, int64_t n_threads, const float* gradient, float* weight, float* mean,
                 float* square, float* steps);
    void (*mlp_forward)(const Mlp&, float* hidden, float* logits);
    void (*mlp_backward)(const Mlp&, const float* hidden, const float* d_logits, const MlpGradients&);
    void (*number_codes)(const Intervals&, int64_t n_threads, const float* measures, int64_t n_rows, float* out);
};

const Kernels& choose_kernels();

// Floats of memory, aligned to a cache line; given back they serve the next batch without new page faults.
float* borrow(int64_t n_floats);
void give_back(float* memory);

// Rows of at least this many ids are worth waking threads for.
constexpr int64_t kWorthThreads = 4096;
constexpr int64_t kLanes = 16;  // rows that the refinement works on side by side

FIELDDEP_INLINE int64_t n_dependency_values(const Refinement& c) {
    return c.n_fields * (c.n_fields - (c.with_diagonal ? 0 : 1));
}

FIELDDEP_INLINE float scale_of(const Column& column, int64_t row) {
    return column.scale == nullptr ? 1.0f : column.scale[row * column.scale_stride];
}

class Borrowed {
  public:
    FIELDDEP_INLINE explicit Borrowed(int64_t n_floats = 0) : memory_(n_floats > 0 ? borrow(n_floats) : nullptr) {}
    FIELDDEP_INLINE ~Borrowed() {
        if (memory_ != nullptr) give_back(memory_);
    }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    FIELDDEP_INLINE float* get() const { return memory_; }

  private:
    float* memory_;
};

}  // namespace fielddep
