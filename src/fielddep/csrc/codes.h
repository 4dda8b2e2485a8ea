// Codes of numbers; see `NumberCodes` in nn/direct.py.
#pragma once

#include "gemm.h"

namespace fielddep {
namespace FIELDDEP_ISA {

// The inverse of the error function (M. Giles, GPU Computing Gems, 2011), right to a few units of the last place.
inline float inverse_erf(float x) {
    constexpr float kCentral[] = {2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 0.00021858087f,
                                  -0.00125372503f, -0.00417768164f, 0.246640727f,    1.50140941f};
    constexpr float kTail[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f, -0.00367342844f, 0.00573950773f,
                               -0.0076224613f,   0.00943887047f,  1.00167406f,    2.83297682f};
    const float w = -__builtin_logf((1.0f - x) * (1.0f + x));
    const bool is_central = w < 5.0f;
    const float place = is_central ? w - 2.5f : __builtin_sqrtf(w) - 3.0f;
    const float* terms = is_central ? kCentral : kTail;
    float total = terms[0];
    for (int i = 1; i < 9; ++i) total = terms[i] + total * place;
    return total * x;
}

inline void number_codes(const Intervals& x, int64_t n_threads, const float* measures, int64_t n_rows, float* out) {
    const int64_t n_shares = x.with_shares ? x.n_intervals : 0, n_codes = n_shares + 3;
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t row = 0; row < n_rows; ++row)
        for (int64_t m = 0; m < x.n_measured; ++m) {
            const float value = measures[row * x.n_measured + m];
            float* to = out + (row * x.n_measured + m) * n_codes;
            clear(to, n_codes);
            if (value != value) {
                to[n_codes - 1] = 1.0f;
                continue;
            }
            const float *low = x.low + m * x.n_intervals, *width = x.width + m * x.n_intervals;
            const float* rank_of = x.rank + m * x.n_intervals;
            float rank = 0.0f;
            for (int64_t i = 0; i < x.n_intervals; ++i) {
                const float share = (value - low[i]) / width[i];
                const float inside = share < 0.0f ? 0.0f : share > 1.0f ? 1.0f : share;
                rank += inside * rank_of[i];
                if (x.with_shares) to[i] = x.share_size * inside;
            }
            rank += x.first_rank[m];
            rank = rank < 1e-3f ? 1e-3f : rank > 0.999f ? 0.999f : rank;
            const float relative = value / x.soft_limit;
            to[n_shares] = 1.41421356f * inverse_erf(2.0f * rank - 1.0f);
            to[n_shares + 1] = value / __builtin_sqrtf(1.0f + relative * relative);
        }
}

}  // namespace FIELDDEP_ISA
}  // namespace fielddep
