// Rows of tables: sums over columns, and the Adagrad and Adam steps.
#pragma once

#include "gemm.h"

namespace fielddep {
namespace FIELDDEP_ISA {

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

constexpr int64_t kAhead = 8;      // rows of a large table are asked for this many ids ahead
constexpr int64_t kPortion = 4096;  // entries of a dense weight that a thread takes at a time

inline void adagrad_row(const Rule& rule, float ridge, int64_t n, const float* __restrict gradient,
                        float* __restrict w, float* __restrict s) {
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) {
        const float g = gradient[c] + ridge * w[c];
        s[c] += g * g;
        w[c] = w[c] * rule.shrink - rule.lr * (g / (__builtin_sqrtf(s[c]) + rule.epsilon));
    }
}

inline void adagrad(const Rule& rule, const Rows& rows, int64_t n_threads, const float* gradient, float* weight,
                    float* sum) {
    if (rows.ids == nullptr) {
        const int64_t n = rows.n * rows.d;
#pragma omp parallel for num_threads(n > kPortion ? n_threads : 1) schedule(static)
        for (int64_t i = 0; i < n; i += kPortion)
            adagrad_row(rule, 0.0f, smaller(kPortion, n - i), gradient + i, weight + i, sum + i);
        return;
    }
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows.n; ++i) {
        if (i + kAhead < rows.n) {
            __builtin_prefetch(weight + rows.ids[i + kAhead] * rows.d, 1);
            __builtin_prefetch(sum + rows.ids[i + kAhead] * rows.d, 1);
        }
        const float ridge = rows.counts == nullptr ? 0.0f : rule.ridge * rows.counts[i];
        const int64_t at = rows.ids[i] * rows.d;
        adagrad_row(rule, ridge, rows.d, gradient + i * rows.d, weight + at, sum + at);
    }
}

inline void adam_row(const Rule& rule, float n_steps, float ridge, int64_t n, const float* __restrict gradient,
                     float* __restrict w, float* __restrict m, float* __restrict s) {
    const float of_mean = 1.0f - __builtin_powf(rule.beta_mean, n_steps);
    const float of_square = 1.0f - __builtin_powf(rule.beta_square, n_steps);
    const float to_mean = 1.0f - rule.beta_mean, to_square = 1.0f - rule.beta_square;
#pragma omp simd
    for (int64_t c = 0; c < n; ++c) {
        const float g = gradient[c] + ridge * w[c];
        m[c] += to_mean * (g - m[c]);
        s[c] += to_square * (g * g - s[c]);
        w[c] = w[c] * rule.shrink - rule.lr * ((m[c] / of_mean) / (__builtin_sqrtf(s[c] / of_square) + rule.epsilon));
    }
}

// The moments of a row advance only in steps that move it; `steps` counts those. A dense weight counts once.
inline void adam(const Rule& rule, const Rows& rows, int64_t n_threads, const float* gradient, float* weight,
                 float* mean, float* square, float* steps) {
    if (rows.ids == nullptr) {
        const int64_t n = rows.n * rows.d;
        const float n_steps = steps[0] += 1;
#pragma omp parallel for num_threads(n > kPortion ? n_threads : 1) schedule(static)
        for (int64_t i = 0; i < n; i += kPortion)
            adam_row(rule, n_steps, 0.0f, smaller(kPortion, n - i), gradient + i, weight + i, mean + i, square + i);
        return;
    }
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows.n; ++i) {
        const float ridge = rows.counts == nullptr ? 0.0f : rule.ridge * rows.counts[i];
        const int64_t row = rows.ids[i], at = row * rows.d;
        const float n_steps = steps[row] += 1;
        adam_row(rule, n_steps, ridge, rows.d, gradient + i * rows.d, weight + at, mean + at, square + at);
    }
}

}  // namespace FIELDDEP_ISA
}  // namespace fielddep
