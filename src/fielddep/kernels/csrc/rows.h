// Rows of tables: sums over columns, and the Adagrad and Adam steps.
#pragma once

#include "gemm.h"

namespace fielddep {
namespace FIELDDEP_ISA {

inline float scale_of(const Column& column, int64_t row) {
    return column.scale == nullptr ? 1.0f : column.scale[row * column.scale_stride];
}

// out (B, d) = sum over columns of scale * values (slots, d).
inline void sum_columns(const Plan& x, const float* values, int64_t d, float* out) {
#pragma omp parallel for num_threads(x.n_threads) schedule(static)
    for (int64_t row = 0; row < x.n_rows; ++row) {
        float* to = out + row * d;
        for (int64_t i = 0; i < d; ++i) to[i] = 0;
        for (int64_t f = 0; f < x.n_columns; ++f) {
            const Column& column = x.columns[f];
            const float* from = values + (column.start + column.slot_of_row[row]) * d;
            const float scale = scale_of(column, row);
            for (int64_t i = 0; i < d; ++i) to[i] += scale * from[i];
        }
    }
}

// The way back: every column's slot gets the gradient of its rows.
inline void back_sum_columns(const Plan& x, const float* d_out, int64_t d, float* d_values) {
#pragma omp parallel for num_threads(x.n_threads) schedule(dynamic, 1)
    for (int64_t f = 0; f < x.n_columns; ++f) {
        const Column& column = x.columns[f];
        clear(d_values + column.start * d, column.n_slots * d);
        for (int64_t row = 0; row < x.n_rows; ++row) {
            float* to = d_values + (column.start + column.slot_of_row[row]) * d;
            const float scale = scale_of(column, row);
            for (int64_t i = 0; i < d; ++i) to[i] += scale * d_out[row * d + i];
        }
    }
}

constexpr int64_t kAhead = 8;  // rows of a large table are asked for this many ids ahead

inline void adagrad(const Rule& rule, const Rows& rows, int64_t n_threads, const float* gradient, float* weight,
                    float* sum) {
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows.n; ++i) {
        if (rows.ids != nullptr && i + kAhead < rows.n) {
            __builtin_prefetch(weight + rows.ids[i + kAhead] * rows.d, 1);
            __builtin_prefetch(sum + rows.ids[i + kAhead] * rows.d, 1);
        }
        const int64_t at = (rows.ids == nullptr ? i : rows.ids[i]) * rows.d;
        const float ridge = rows.counts == nullptr ? 0.0f : rule.ridge * rows.counts[i];
        const float* __restrict g_row = gradient + i * rows.d;
        float *__restrict w = weight + at, *__restrict s = sum + at;
#pragma omp simd
        for (int64_t c = 0; c < rows.d; ++c) {
            const float g = g_row[c] + ridge * w[c];
            s[c] += g * g;
            w[c] = w[c] * rule.shrink - rule.lr * (g / (__builtin_sqrtf(s[c]) + rule.epsilon));
        }
    }
}

// The moments of a row advance only in steps that move it; `steps` counts those.
inline void adam(const Rule& rule, const Rows& rows, int64_t n_threads, const float* gradient, float* weight,
                 float* mean, float* square, float* steps) {
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows.n; ++i) {
        const int64_t row = rows.ids == nullptr ? i : rows.ids[i];
        const float ridge = rows.counts == nullptr ? 0.0f : rule.ridge * rows.counts[i];
        const float n_steps = steps[row] += 1;
        const float of_mean = 1.0f - __builtin_powf(rule.beta_mean, n_steps);
        const float of_square = 1.0f - __builtin_powf(rule.beta_square, n_steps);
        const float to_mean = 1.0f - rule.beta_mean, to_square = 1.0f - rule.beta_square;
        const float* __restrict g_row = gradient + i * rows.d;
        float *__restrict w = weight + row * rows.d, *__restrict m = mean + row * rows.d;
        float* __restrict s = square + row * rows.d;
#pragma omp simd
        for (int64_t c = 0; c < rows.d; ++c) {
            const float g = g_row[c] + ridge * w[c];
            m[c] += to_mean * (g - m[c]);
            s[c] += to_square * (g * g - s[c]);
            w[c] = w[c] * rule.shrink - rule.lr * ((m[c] / of_mean) / (__builtin_sqrtf(s[c] / of_square) + rule.epsilon));
        }
    }
}

}  // namespace FIELDDEP_ISA
}  // namespace fielddep
