// Vectors of eight floats, and matrix products of the small sizes that embeddings have.
#pragma once

#include "kernels.h"

#ifdef __AVX__
#include <immintrin.h>
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

namespace fielddep {
namespace FIELDDEP_ISA {

inline int64_t thread_number() {
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

typedef float Vector __attribute__((vector_size(32), aligned(4), may_alias));

inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, Vector x) { *reinterpret_cast<Vector*>(to) = x; }
inline Vector spread(float x) { return Vector{} + x; }

inline void clear(float* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = 0;
}
inline void copy(float* to, const float* from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

inline float sum(Vector x) {
    float total = 0;
    for (int i = 0; i < kVector; ++i) total += x[i];
    return total;
}

inline float dot(const float* a, const float* b, int64_t n) {
    Vector total{};
    for (int64_t i = 0; i < n; i += kVector) total += load(a + i) * load(b + i);
    return sum(total);
}

// Sums of eight vectors, one in each place.
inline Vector sums_of_eight(const Vector (&x)[8]) {
#ifdef __AVX__
    const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(__m256(x[0]), __m256(x[1])), _mm256_hadd_ps(__m256(x[2]), __m256(x[3])));
    const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(__m256(x[4]), __m256(x[5])), _mm256_hadd_ps(__m256(x[6]), __m256(x[7])));
    return Vector(_mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31)));
#else
    Vector total;
    for (int i = 0; i < 8; ++i) total[i] = sum(x[i]);
    return total;
#endif
}

// The compiler would read a vector again from memory for every use of it; loads, not products, would set the pace.
inline Vector in_register(Vector x) {
#if defined(__AVX512VL__)
    asm("" : "+v"(x));
#elif defined(__AVX__)
    asm("" : "+x"(x));
#endif
    return x;
}

// Sums that fit the registers: 32 with AVX-512, 16 otherwise.
#if defined(__AVX512VL__)
constexpr int kTileM = 6, kTileN = 4;
#elif defined(__AVX__)
constexpr int kTileM = 4, kTileN = 3;
#else
constexpr int kTileM = 2, kTileN = 2;
#endif

struct Product {
    const float* a;
    int64_t a_row, a_column;
    const float* b;
    int64_t b_row;
    float* c;
    int64_t c_row;
};

template <int M, int N>
inline void tile_product(const Product& x, int64_t m, int64_t n, int64_t depth, bool add) {
    Vector total[M][N] = {};
    const float *a = x.a + m * x.a_row, *b = x.b + n;
    for (int64_t i = 0; i < depth; ++i) {
        Vector right[N];
#pragma GCC unroll 8
        for (int q = 0; q < N; ++q) right[q] = in_register(load(b + q * kVector));
#pragma GCC unroll 8
        for (int p = 0; p < M; ++p) {
            const Vector left = spread(a[p * x.a_row]);
#pragma GCC unroll 8
            for (int q = 0; q < N; ++q) total[p][q] += left * right[q];
        }
        a += x.a_column, b += x.b_row;
    }
#pragma GCC unroll 8
    for (int p = 0; p < M; ++p)
#pragma GCC unroll 8
        for (int q = 0; q < N; ++q) {
            float* to = x.c + (m + p) * x.c_row + n + q * kVector;
            store(to, add ? load(to) + total[p][q] : total[p][q]);
        }
}

template <int N>
inline void tile_rows(const Product& x, int64_t n_rows, int64_t n, int64_t depth, bool add) {
    int64_t m = 0;
    for (; m + kTileM <= n_rows; m += kTileM) tile_product<kTileM, N>(x, m, n, depth, add);
    switch (n_rows - m) {
        case 1: tile_product<1, N>(x, m, n, depth, add); break;
        case 2: tile_product<2, N>(x, m, n, depth, add); break;
        case 3: tile_product<3, N>(x, m, n, depth, add); break;
        case 4: tile_product<4, N>(x, m, n, depth, add); break;
        case 5: tile_product<5, N>(x, m, n, depth, add); break;
        default: break;
    }
}

// C[M][N] = A[M][depth] B[depth][N], or C += A B. N is a multiple of eight; A may be read with any strides.
inline void multiply_matrices(const Product& x, int64_t n_rows, int64_t n_columns, int64_t depth, bool add) {
    int64_t n = 0;
    for (; n + kTileN * kVector <= n_columns; n += kTileN * kVector) tile_rows<kTileN>(x, n_rows, n, depth, add);
    switch ((n_columns - n) / kVector) {
        case 1: tile_rows<1>(x, n_rows, n, depth, add); break;
        case 2: tile_rows<2>(x, n_rows, n, depth, add); break;
        case 3: tile_rows<3>(x, n_rows, n, depth, add); break;
        default: break;
    }
}

}  // namespace FIELDDEP_ISA
}  // namespace fielddep
