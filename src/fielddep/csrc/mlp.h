// A ReLU network with a linear way past it, on inputs that each have a gate:
//
//     logits = W_L h_L + b_L + A (g x),   h_1 = drop(relu(W_1 (g x) + b_1)),   h_l = drop(relu(W_l h_l-1 + b_l))
//
// Gates multiply columns, so they are multiplied into the weights once a batch instead of into every row. The same sums
// then give the gradients of weights and gates: with D = x^T d, that of W is g D, and that of g sums D W.
// Every entry of a product is summed in one fixed order, so neither the number of threads nor the other rows of a batch
// change any bit.
#pragma once

#include "gemm.h"

namespace fielddep {
namespace FIELDDEP_ISA {

constexpr int64_t kDepth = 128;   // of a product at a time: what it reads stays in the first cache
constexpr int64_t kSlice = 96;    // rows of a gradient that a thread takes at a time
constexpr int64_t kWorthPacking = 16;  // rows

inline int64_t input_width(const Mlp& x, int64_t layer) { return layer == 0 ? x.n_inputs : x.widths[layer - 1]; }
inline int64_t output_width(const Mlp& x, int64_t layer) { return layer == x.n_hidden ? x.n_outputs : x.widths[layer]; }

// Floats of all weights, transposed; the linear way comes last.
inline int64_t transposed_size(const Mlp& x) {
    int64_t total = x.n_inputs * padded(x.n_outputs);
    for (int64_t layer = 0; layer <= x.n_hidden; ++layer) total += input_width(x, layer) * padded(output_width(x, layer));
    return total;
}

// C = A B or C += A B, with a panel of B at a time moved together: its rows lie far apart, and would push each other out
// of the first cache.
inline void multiply_deep(const Product& x, int64_t n_rows, int64_t n_columns, int64_t depth, bool add) {
    constexpr int64_t kPanel = kTileN * kVector;
    float packed[kDepth * kPanel];
    for (int64_t n = 0; n < n_columns; n += kPanel) {
        const int64_t width = smaller(kPanel, n_columns - n);
        for (int64_t start = 0; start < depth; start += kDepth) {
            const int64_t length = smaller(kDepth, depth - start);
            const float* from = x.b + start * x.b_row + n;
            Product part{x.a + start * x.a_column, x.a_row, x.a_column, from, x.b_row, x.c + n, x.c_row};
            if (n_rows >= kWorthPacking) {
                for (int64_t i = 0; i < length; ++i)
                    for (int64_t j = 0; j < width; j += kVector)
                        store(packed + i * width + j, load(from + i * x.b_row + j));
                part.b = packed, part.b_row = width;
            }
            multiply_matrices(part, n_rows, width, length, add || start > 0);
        }
    }
}

// to[column][row] = from[row][column] * scale[column]; rows up to `to_row` are zero.
inline void transpose(const float* from, int64_t n_rows, int64_t n_columns, const float* scale, float* to, int64_t to_row) {
    for (int64_t start = 0; start < n_columns; start += kVector) {
        const int64_t stop = smaller(start + kVector, n_columns);
        for (int64_t row = 0; row < n_rows; ++row)
            for (int64_t column = start; column < stop; ++column) {
                const float factor = scale == nullptr ? 1.0f : scale[column];
                to[column * to_row + row] = from[row * n_columns + column] * factor;
            }
        for (int64_t column = start; column < stop; ++column) clear(to + column * to_row + n_rows, to_row - n_rows);
    }
}

inline uint64_t mixed(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

typedef int32_t VectorMask __attribute__((vector_size(32)));
typedef uint8_t Bytes __attribute__((vector_size(8)));

// Bias, ReLU and dropout of n entries, a multiple of eight; `place` numbers them among all entries of the batch.
inline void activate(const Mlp& x, const float* bias, int64_t n, uint64_t place, float* h) {
    const float scale = 256.0f / float(256 - x.n_dropped);
    for (int64_t i = 0; i < n; i += kVector) {
        const Vector value = load(h + i) + load(bias + i);
        VectorMask kept = value > 0;
        if (x.n_dropped > 0) {
            const uint64_t draws = mixed(x.seed + place + uint64_t(i));
            Bytes bytes;
            __builtin_memcpy(&bytes, &draws, sizeof(draws));
            kept &= __builtin_convertvector(bytes, VectorMask) >= int32_t(x.n_dropped);
        }
        store(h + i, Vector(VectorMask(value * scale) & kept));
    }
}

// hidden (B, widths one after another), logits (B, C).
inline void mlp_forward(const Mlp& x, float* hidden, float* logits) {
    const int64_t n_kept = hidden_width(x), n_padded = padded(x.n_outputs), last = x.n_hidden;
    const int64_t n_blocks = (x.n_rows + kRowBlock - 1) / kRowBlock;
    const Borrowed transposed(transposed_size(x)), outputs(x.n_threads * kRowBlock * n_padded);
    float* at = transposed.get();
    for (int64_t layer = 0; layer <= last; ++layer) {
        const int64_t width = padded(output_width(x, layer));
        transpose(x.weights[layer], output_width(x, layer), input_width(x, layer), layer == 0 ? x.gate : nullptr, at, width);
        at += input_width(x, layer) * width;
    }
    const float* linear = at;
    transpose(x.linear, x.n_outputs, x.n_inputs, x.gate, at, n_padded);
#pragma omp parallel for num_threads(x.n_threads) schedule(static)
    for (int64_t block = 0; block < n_blocks; ++block) {
        const int64_t row = block * kRowBlock, n = smaller(kRowBlock, x.n_rows - row);
        const float *input = x.inputs + row * x.n_inputs, *weight = transposed.get();
        int64_t input_row = x.n_inputs;
        float *h = hidden + row * n_kept, *y = outputs.get() + thread_number() * kRowBlock * n_padded;
        for (int64_t layer = 0; layer < last; ++layer) {
            const int64_t depth = input_width(x, layer), width = x.widths[layer];
            multiply_deep({input, input_row, 1, weight, width, h, n_kept}, n, width, depth, false);
            for (int64_t i = 0; i < n; ++i) {
                const uint64_t place = uint64_t((row + i) * n_kept + (h - hidden - row * n_kept));
                activate(x, x.biases[layer], width, place, h + i * n_kept);
            }
            weight += depth * width, input = h, input_row = n_kept, h += width;
        }
        multiply_deep({input, input_row, 1, weight, n_padded, y, n_padded}, n, n_padded, input_width(x, last), false);
        const float* raw = x.inputs + row * x.n_inputs;
        multiply_deep({raw, x.n_inputs, 1, linear, n_padded, y, n_padded}, n, n_padded, x.n_inputs, true);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t c = 0; c < x.n_outputs; ++c)
                logits[(row + i) * x.n_outputs + c] = y[i * n_padded + c] + x.biases[last][c];
    }
}

// d (B, widths) gradients before the ReLU, padded gradients of the logits, and those of the last inputs.
inline void back_rows(const Mlp& x, const float* hidden, const float* d_logits, float* d, float* d_outputs,
                      const MlpGradients& to) {
    const int64_t n_kept = hidden_width(x), n_padded = padded(x.n_outputs), last = x.n_hidden;
    const int64_t n_blocks = (x.n_rows + kRowBlock - 1) / kRowBlock, first = x.n_inputs - to.n_inputs;
    const float scale = 256.0f / float(256 - x.n_dropped);
#pragma omp parallel for num_threads(x.n_threads) schedule(static)
    for (int64_t block = 0; block < n_blocks; ++block) {
        const int64_t row = block * kRowBlock, n = smaller(kRowBlock, x.n_rows - row);
        float* own = d_outputs + row * n_padded;
        for (int64_t i = 0; i < n; ++i)
            for (int64_t c = 0; c < n_padded; ++c)
                own[i * n_padded + c] = c < x.n_outputs ? d_logits[(row + i) * x.n_outputs + c] : 0.0f;
        const float* above = own;
        int64_t above_row = n_padded, above_width = x.n_outputs, at = n_kept;
        for (int64_t layer = last - 1; layer >= 0; --layer) {
            const int64_t width = x.widths[layer];
            at -= width;
            float* below = d + row * n_kept + at;
            multiply_deep({above, above_row, 1, x.weights[layer + 1], width, below, n_kept}, n, width, above_width, false);
            for (int64_t i = 0; i < n; ++i) {
                const float* h = hidden + (row + i) * n_kept + at;
                float* entry = below + i * n_kept;
                for (int64_t j = 0; j < width; ++j) entry[j] = h[j] > 0 ? entry[j] * scale : 0.0f;
            }
            above = below, above_row = n_kept, above_width = width;
        }
        if (to.n_inputs == 0) continue;
        float* d_inputs = to.inputs + row * to.n_inputs;
        multiply_deep({above, above_row, 1, x.weights[0] + first, x.n_inputs, d_inputs, to.n_inputs}, n, to.n_inputs,
                      above_width, false);
        multiply_deep({own, n_padded, 1, x.linear + first, x.n_inputs, d_inputs, to.n_inputs}, n, to.n_inputs,
                      x.n_outputs, true);
        for (int64_t i = 0; i < n; ++i)
            for (int64_t j = 0; j < to.n_inputs; ++j) d_inputs[i * to.n_inputs + j] *= x.gate[first + j];
    }
}

// A gradient of weights, as the product of what went in and what came back.
struct Slices {
    Product product;
    int64_t n_rows, n_columns, depth;
};

inline void multiply_slices(const Slices* all, int64_t n_products, int64_t n_threads) {
    int64_t n_slices = 0;
    for (int64_t p = 0; p < n_products; ++p) n_slices += (all[p].n_rows + kSlice - 1) / kSlice;
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t slice = 0; slice < n_slices; ++slice) {
        const Slices* one = all;
        int64_t row = slice * kSlice;
        while (row >= (one->n_rows + kSlice - 1) / kSlice * kSlice) row -= (one++->n_rows + kSlice - 1) / kSlice * kSlice;
        Product x = one->product;
        x.a += row * x.a_row, x.c += row * x.c_row;
        multiply_deep(x, smaller(kSlice, one->n_rows - row), one->n_columns, one->depth, false);
    }
}

// From D (columns, rows padded): d_weight[row][column] = gate * D, and what it adds to the gradient of the gates.
inline void spread_gradient(const float* d, int64_t d_row, int64_t n_rows, int64_t n_columns, const float* weight,
                            const float* gate, float* d_weight, float* d_gate) {
    for (int64_t start = 0; start < n_columns; start += kVector) {
        const int64_t stop = smaller(start + kVector, n_columns);
        for (int64_t row = 0; row < n_rows; ++row)
            for (int64_t column = start; column < stop; ++column) {
                const float entry = d[column * d_row + row];
                const int64_t at = row * n_columns + column;
                if (gate != nullptr) d_gate[column] += entry * weight[at];
                d_weight[at] = gate == nullptr ? entry : entry * gate[column];
            }
    }
}

inline void sum_rows(const float* from, int64_t stride, int64_t n_rows, int64_t n, float* to) {
    clear(to, n);
    for (int64_t row = 0; row < n_rows; ++row)
        for (int64_t i = 0; i < n; ++i) to[i] += from[row * stride + i];
}

inline void mlp_backward(const Mlp& x, const float* hidden, const float* d_logits, const MlpGradients& to) {
    const int64_t n_kept = hidden_width(x), n_padded = padded(x.n_outputs), last = x.n_hidden;
    const Borrowed back(x.n_rows * n_kept), outputs(x.n_rows * n_padded), products(transposed_size(x));
    back_rows(x, hidden, d_logits, back.get(), outputs.get(), to);
    Slices slices[kMostLayers + 2];
    const float* input = x.inputs;
    int64_t input_row = x.n_inputs, kept = 0;
    float* at = products.get();
    for (int64_t layer = 0; layer <= last; ++layer) {
        const bool is_last = layer == last;
        const int64_t depth = input_width(x, layer), width = padded(output_width(x, layer));
        const float* d = is_last ? outputs.get() : back.get() + kept;
        const int64_t d_row = is_last ? n_padded : n_kept;
        slices[layer] = {{input, 1, input_row, d, d_row, at, width}, depth, width, x.n_rows};
        sum_rows(d, d_row, x.n_rows, output_width(x, layer), to.biases[layer]);
        at += depth * width;
        if (!is_last) input = hidden + kept, input_row = n_kept, kept += x.widths[layer];
    }
    slices[last + 1] = {{x.inputs, 1, x.n_inputs, outputs.get(), n_padded, at, n_padded}, x.n_inputs, n_padded, x.n_rows};
    multiply_slices(slices, last + 2, x.n_threads);
    clear(to.gate, x.n_inputs);
    for (int64_t layer = 0; layer <= last; ++layer)
        spread_gradient(slices[layer].product.c, slices[layer].n_columns, output_width(x, layer), input_width(x, layer),
                        x.weights[layer], layer == 0 ? x.gate : nullptr, to.weights[layer], to.gate);
    spread_gradient(at, n_padded, x.n_outputs, x.n_inputs, x.linear, x.gate, to.linear, to.gate);
}

}  // namespace FIELDDEP_ISA
}  // namespace fielddep
