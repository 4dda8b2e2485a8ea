// Lanes: sixteen rows of a batch side by side, so that small per-row matrices become plain vector code.
//
// A lane matrix of shape [M][N] holds entry (m, n) of sixteen rows in one vector. Every product, sum and projection
// of the refinement then is an elementwise vector operation, whatever the number of fields is.
#pragma once

#include "gemm.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace fielddep {
namespace FIELDDEP_ISA {

typedef float Lane __attribute__((vector_size(64)));
typedef int32_t LaneMask __attribute__((vector_size(64)));

inline Lane broadcast(float x) { return Lane{} + x; }

inline float sum_of_lanes(Lane x) {
    float total = 0;
    for (int64_t i = 0; i < kLanes; ++i) total += x[i];
    return total;
}

inline bool any(LaneMask mask) {
    int32_t found = 0;
    for (int64_t i = 0; i < kLanes; ++i) found |= mask[i];
    return found != 0;
}

// Memory that hands out lane matrices one after another.
class Scratch {
  public:
    explicit Scratch(float* memory) : next_(reinterpret_cast<Lane*>(memory)) {}
    Lane* take(int64_t n_lanes) {
        Lane* taken = next_;
        next_ += n_lanes;
        return taken;
    }

  private:
    Lane* next_;
};

#ifdef __AVX512F__
// Transpose a 16 x 16 block held in sixteen vectors: pairs, quads, then 128-bit quarters.
inline void transpose_16x16(__m512 (&x)[16]) {
    __m512 y[16];
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int h = 0; h < 2; ++h) {
            const __m512d low = _mm512_castps_pd(y[i + h]), high = _mm512_castps_pd(y[i + h + 2]);
            x[i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            x[i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    for (int i = 0; i < 4; ++i) {
        const __m512 a = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88), b = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
        const __m512 c = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
        const __m512 d = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
        y[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        y[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        y[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        y[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
    for (int i = 0; i < 16; ++i) x[i] = y[i];
}
#endif

#ifdef __AVX512F__
inline __mmask16 first_bits(int64_t n) { return n >= 16 ? __mmask16(0xffff) : __mmask16((1u << n) - 1); }
#endif

// Rows of `n` floats, `stride` apart, into `n` lanes; rows that are not there become zero.
inline void rows_to_lanes(const float* rows, int64_t stride, int64_t n_rows, int64_t n, Lane* lanes) {
#ifdef __AVX512F__
    for (int64_t start = 0; start < n; start += 16) {
        const __mmask16 mask = first_bits(n - start);
        __m512 x[16];
        for (int i = 0; i < 16; ++i)
            x[i] = i < n_rows ? _mm512_maskz_loadu_ps(mask, rows + i * stride + start) : _mm512_setzero_ps();
        transpose_16x16(x);
        for (int i = 0; i < 16 && start + i < n; ++i) lanes[start + i] = reinterpret_cast<Lane&>(x[i]);
    }
#else
    for (int64_t at = 0; at < n; ++at) {
        Lane lane{};
        for (int64_t row = 0; row < n_rows; ++row) lane[row] = rows[row * stride + at];
        lanes[at] = lane;
    }
#endif
}

// The way back; rows that are not there are not written.
inline void lanes_to_rows(const Lane* lanes, int64_t n, float* rows, int64_t stride, int64_t n_rows) {
#ifdef __AVX512F__
    for (int64_t start = 0; start < n; start += 16) {
        const __mmask16 mask = first_bits(n - start);
        __m512 x[16];
        for (int i = 0; i < 16; ++i)
            x[i] = start + i < n ? reinterpret_cast<const __m512&>(lanes[start + i]) : _mm512_setzero_ps();
        transpose_16x16(x);
        for (int i = 0; i < n_rows; ++i) _mm512_mask_storeu_ps(rows + i * stride + start, mask, x[i]);
    }
#else
    const float* flat = reinterpret_cast<const float*>(lanes);
    for (int64_t at = 0; at < n; ++at)
        for (int64_t row = 0; row < n_rows; ++row) rows[row * stride + at] = flat[at * kLanes + row];
#endif
}

// A lane matrix that may be read transposed.
struct Operand {
    const Lane* data;
    int64_t row, column;
    const Lane* at(int64_t m, int64_t n) const { return data + m * row + n * column; }
};
inline Operand plain(const Lane* data, int64_t n_columns) { return {data, n_columns, 1}; }
inline Operand transposed(const Lane* data, int64_t n_columns) { return {data, 1, n_columns}; }

// See `in_register`, for lanes.
inline Lane keep_in_register(Lane x) {
#ifdef __AVX512F__
    asm("" : "+v"(x));
#endif
    return x;
}

template <int TM, int TN>
void multiply_tile(Operand a, Operand b, int64_t depth, Lane* c, int64_t c_row, bool add) {
    Lane sum[TM][TN] = {};
    for (int64_t k = 0; k < depth; ++k) {
        Lane left[TM];
        for (int m = 0; m < TM; ++m) left[m] = *a.at(m, k);
        for (int n = 0; n < TN; ++n) {
            const Lane right = keep_in_register(*b.at(k, n));
            for (int m = 0; m < TM; ++m) sum[m][n] += left[m] * right;
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < TM; ++m)
#pragma GCC unroll 8
        for (int n = 0; n < TN; ++n) {
            Lane& to = c[m * c_row + n];
            to = add ? to + sum[m][n] : sum[m][n];
        }
}

// Sums fill most of the registers: a lane is one of 32 with AVX-512, two of 16 with AVX2, four otherwise.
#if defined(__AVX512F__)
constexpr int64_t kTileRows = 4, kTileColumns = 6;
#elif defined(__AVX__)
constexpr int64_t kTileRows = 2, kTileColumns = 3;
#else
constexpr int64_t kTileRows = 1, kTileColumns = 2;
#endif
using Tile = void (*)(Operand, Operand, int64_t, Lane*, int64_t, bool);
template <int TM>
constexpr Tile tile_of(int64_t columns) {
    constexpr Tile tiles[] = {multiply_tile<TM, 1>, multiply_tile<TM, 2>, multiply_tile<TM, 3>,
                              multiply_tile<TM, 4>, multiply_tile<TM, 5>, multiply_tile<TM, 6>};
    return tiles[columns - 1];
}
inline Tile tile_for(int64_t rows, int64_t columns) {
    switch (rows) {
        case 1: return tile_of<1>(columns);
        case 2: return tile_of<2>(columns);
        case 3: return tile_of<3>(columns);
        default: return tile_of<4>(columns);
    }
}

// Even shares waste less than full tiles and a thin rest.
inline int64_t share(int64_t left, int64_t largest) {
    const int64_t parts = (left + largest - 1) / largest;
    return (left + parts - 1) / parts;
}

// C[M][N] = A B, or C += A B; with `upper`, only entries on and right of the diagonal are sure to be computed.
inline void multiply(Operand a, Operand b, int64_t n_rows, int64_t depth, int64_t n_columns, Lane* c, bool add,
                     bool upper = false) {
    for (int64_t m = 0; m < n_rows;) {
        const int64_t rows = share(n_rows - m, kTileRows);
        for (int64_t n = upper ? m : 0; n < n_columns;) {
            const int64_t columns = share(n_columns - n, kTileColumns);
            const Operand left{a.at(m, 0), a.row, a.column}, right{b.at(0, n), b.row, b.column};
            tile_for(rows, columns)(left, right, depth, c + m * n_columns + n, n_columns, add);
            n += columns;
        }
        m += rows;
    }
}

}  // namespace FIELDDEP_ISA
}  // namespace fielddep
