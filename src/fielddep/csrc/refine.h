// Refinement: T label-free steps on (W, mu) of every row, forward and backward, sixteen rows at a time.
//
// Names: E is m x k here (a field a row), S = E E^T, G = S W, q_j the squared residual of field j.
//     W(t+1) = W(t) - w_rate * mu_j(t) G(t) off the diagonal;  mu(t+1) = project(mu(t) - mu_rate * q(t+1 or t))
// The backward pass runs the forward again and keeps (W, G, mu) of every step in cache instead of in memory.
// With `unit_norm`, E stands for the embeddings divided by the root of their |S|, and q is given back in their own unit;
// with `mean_norm` too, by the root of the mean of |S| and `mean_norm`.
// "Direct" products R = E^T W, G = E R replace S W where there are many more fields than embedding entries.
#pragma once

#include "lanes.h"

namespace fielddep {
namespace FIELDDEP_ISA {

struct Steps {
    Lane *e, *s, *w, *g, *r, *mu, *q;
    Lane* norm;  // what S is divided by
    int64_t stride_ff, stride_df, stride_f;  // zero where only the newest step is kept
    Lane* w_at(int64_t t) const { return w + t * stride_ff; }
    Lane* g_at(int64_t t) const { return g + t * stride_ff; }
    Lane* r_at(int64_t t) const { return r + t * stride_df; }
    Lane* mu_at(int64_t t) const { return mu + t * stride_f; }
};

inline int64_t steps_size(const Refinement& c, bool keep) {
    const int64_t m = c.n_fields, k = c.d_embed, n = keep ? c.n_steps + 1 : 1;
    return m * k + m * m + n * (2 * m * m + k * m + m) + m + 1;
}

inline Steps make_steps(const Refinement& c, bool keep, Scratch& scratch) {
    const int64_t m = c.n_fields, k = c.d_embed, n = keep ? c.n_steps + 1 : 1;
    Steps x;
    x.e = scratch.take(m * k);
    x.s = scratch.take(m * m);
    x.w = scratch.take(n * m * m);
    x.g = scratch.take(n * m * m);
    x.r = scratch.take(n * k * m);
    x.mu = scratch.take(n * m);
    x.q = scratch.take(m);
    x.norm = scratch.take(1);
    x.stride_ff = keep ? m * m : 0;
    x.stride_df = keep ? k * m : 0;
    x.stride_f = keep ? m : 0;
    return x;
}

inline void gram(const Refinement& c, Steps& x) {
    const int64_t m = c.n_fields, k = c.d_embed;
    multiply(plain(x.e, k), transposed(x.e, k), m, k, m, x.s, false, true);
    for (int64_t i = 1; i < m; ++i)
        for (int64_t j = 0; j < i; ++j) x.s[i * m + j] = x.s[j * m + i];
}

inline Lane square_root(Lane x) {
    for (int64_t i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
    return x;
}

inline void multiply_by(Lane factor, Lane* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

// Brings |S| to one (below two, with a mean norm) by scaling E and S. |S| is at least the largest eigenvalue of S.
inline void normalize(const Refinement& c, Steps& x) {
    const int64_t m = c.n_fields;
    if (!c.gram_form) gram(c, x);
    Lane sum{};
    for (int64_t i = 0; i < m * m; ++i) sum += x.s[i] * x.s[i];
    const Lane norm = square_root(sum), smallest = broadcast(1e-12f), one = broadcast(1.0f);
    *x.norm = norm < smallest ? smallest : norm;
    if (c.mean_norm > 0) *x.norm = broadcast(0.5f) * (*x.norm + broadcast(c.mean_norm));
    multiply_by(one / square_root(*x.norm), x.e, m * c.d_embed);
    multiply_by(one / *x.norm, x.s, m * m);
}

inline void residuals(const Refinement& c, Steps& x, int64_t t) {
    const int64_t m = c.n_fields, k = c.d_embed;
    const Lane *w = x.w_at(t), *left, *right;
    int64_t depth;
    if (c.gram_form) {
        multiply(plain(x.s, m), plain(w, m), m, m, m, x.g_at(t), false);
        left = w, right = x.g_at(t), depth = m;
    } else {
        multiply(transposed(x.e, k), plain(w, m), k, m, m, x.r_at(t), false);
        // The last gradient moves nothing.
        if (t < c.n_steps) multiply(plain(x.e, k), plain(x.r_at(t), m), m, k, m, x.g_at(t), false);
        left = right = x.r_at(t), depth = k;
    }
    for (int64_t j = 0; j < m; ++j) x.q[j] = Lane{};
    for (int64_t i = 0; i < depth; ++i)
        for (int64_t j = 0; j < m; ++j) x.q[j] += left[i * m + j] * right[i * m + j];
}

inline void step_w(const Refinement& c, const Steps& x, int64_t t) {
    const int64_t m = c.n_fields;
    const Lane *w = x.w_at(t), *g = x.g_at(t), *mu = x.mu_at(t);
    Lane* next = x.w_at(t + 1);
    for (int64_t i = 0; i < m; ++i) {
        const Lane diagonal = w[i * m + i];
        for (int64_t j = 0; j < m; ++j) next[i * m + j] = w[i * m + j] - c.w_rate * (g[i * m + j] * mu[j]);
        next[i * m + i] = diagonal;
    }
}

// Nearest point of the simplex: shrink the support until every entry of it stays above the shift.
// Entries are taken relative to the largest one, which therefore always stays.
inline void project(Lane* v, int64_t n, float total) {
    Lane top = v[0];
    for (int64_t j = 1; j < n; ++j) top = v[j] > top ? v[j] : top;
    for (int64_t j = 0; j < n; ++j) v[j] -= top;
    const Lane one = broadcast(1.0f), zero{};
    Lane shift = broadcast(-__builtin_inff()), support{};
    for (int64_t round = 0; round <= n; ++round) {
        Lane sum = broadcast(-total), count{};
        for (int64_t j = 0; j < n; ++j) {
            const LaneMask inside = v[j] > shift;
            sum += inside ? v[j] : zero;
            count += inside ? one : zero;
        }
        shift = sum / count;
        if (!any(count != support)) break;
        support = count;
    }
    for (int64_t j = 0; j < n; ++j) {
        const Lane moved = v[j] - shift;
        v[j] = moved < zero ? zero : moved;  // keeps NaN, which a maximum would hide
    }
}

inline void step_mu(const Refinement& c, const Steps& x, int64_t t) {
    const Lane* mu = x.mu_at(t);
    Lane* next = x.mu_at(t + 1);
    for (int64_t j = 0; j < c.n_fields; ++j) next[j] = mu[j] - c.mu_rate * x.q[j];
    project(next, c.n_fields, c.total);
}

inline void run(const Refinement& c, Steps& x, const float* w0, bool need_last) {
    const int64_t m = c.n_fields;
    for (int64_t i = 0; i < m * m; ++i) x.w[i] = broadcast(w0[i]);
    for (int64_t j = 0; j < m; ++j) x.mu[j] = broadcast(c.mu_start);
    if (c.gram_form) gram(c, x);
    if (c.unit_norm) normalize(c, x);
    if (c.n_steps > 0 || need_last) residuals(c, x, 0);
    for (int64_t t = 0; t < c.n_steps; ++t) {
        step_w(c, x, t);
        if (c.mu_from_old) step_mu(c, x, t);
        if (!c.mu_from_old || t + 1 < c.n_steps || need_last) residuals(c, x, t + 1);
        if (!c.mu_from_old) step_mu(c, x, t);
    }
}

// Entries of value_scale * mu_j * w_ij that the network sees, row-major.
inline int64_t weighted_values(const Refinement& c, const Lane* w, const Lane* mu, Lane* values) {
    const int64_t m = c.n_fields;
    int64_t n = 0;
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < m; ++j)
            if (i != j || c.with_diagonal) values[n++] = w[i * m + j] * (mu[j] * c.value_scale);
    return n;
}

struct Gradients {
    Lane *w, *mu, *q, *g, *h, *s, *e, *r;
};

inline int64_t gradients_size(const Refinement& c) {
    const int64_t m = c.n_fields, k = c.d_embed;
    return 4 * m * m + 2 * m + 2 * m * k;
}

inline Gradients make_gradients(const Refinement& c, Scratch& scratch) {
    const int64_t m = c.n_fields, k = c.d_embed;
    Gradients d;
    d.w = scratch.take(m * m);
    d.g = scratch.take(m * m);
    d.h = scratch.take(m * m);
    d.s = scratch.take(m * m);
    d.mu = scratch.take(m);
    d.q = scratch.take(m);
    d.e = scratch.take(m * k);
    d.r = scratch.take(m * k);
    return d;
}

inline void add_values_gradient(const Refinement& c, const Lane* w, const Lane* mu, const Lane* values, Gradients& d) {
    const int64_t m = c.n_fields;
    int64_t n = 0;
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < m; ++j) {
            if (i == j && !c.with_diagonal) continue;
            const Lane value = values[n++] * c.value_scale;
            d.w[i * m + j] += value * mu[j];
            d.mu[j] += value * w[i * m + j];
        }
}

// Gradient through W(t+1) = W(t) - w_rate mu(t) G(t): fills d.g and adds to d.mu; d.w passes on unchanged.
inline void back_step_w(const Refinement& c, const Steps& x, int64_t t, Gradients& d) {
    const int64_t m = c.n_fields;
    const Lane *g = x.g_at(t), *mu = x.mu_at(t);
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < m; ++j) {
            const Lane moved = i == j ? Lane{} : -c.w_rate * d.w[i * m + j];
            d.g[i * m + j] = moved * mu[j];
            d.mu[j] += moved * g[i * m + j];
        }
}

// Gradient through the projection: on the support it loses its mean, elsewhere it is zero.
inline void back_project(const Lane* mu, int64_t n, Lane* d) {
    const Lane one = broadcast(1.0f), zero{};
    Lane sum{}, count{};
    for (int64_t j = 0; j < n; ++j) {
        const LaneMask inside = mu[j] > zero;
        sum += inside ? d[j] : zero;
        count += inside ? one : zero;
    }
    const Lane mean = sum / count;
    for (int64_t j = 0; j < n; ++j) d[j] = mu[j] > zero ? d[j] - mean : zero;
}

// Gradient through G = S W and q = column sums of W * G.
inline void back_residuals_gram(const Refinement& c, const Steps& x, int64_t t, Gradients& d, bool g_is_zero) {
    const int64_t m = c.n_fields;
    const Lane *w = x.w_at(t), *g = x.g_at(t);
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < m; ++j) {
            const int64_t ij = i * m + j;
            d.h[ij] = w[ij] * d.q[j];
            if (!g_is_zero) d.h[ij] += d.g[ij];
            d.w[ij] += 2.0f * (g[ij] * d.q[j]);
        }
    multiply(plain(d.h, m), transposed(w, m), m, m, m, d.s, true);
    if (!g_is_zero) multiply(plain(x.s, m), plain(d.g, m), m, m, m, d.w, true);
}

// The same through R = E^T W, G = E R and q = column sums of R * R.
inline void back_residuals_direct(const Refinement& c, const Steps& x, int64_t t, Gradients& d, bool g_is_zero) {
    const int64_t m = c.n_fields, k = c.d_embed;
    const Lane *w = x.w_at(t), *r = x.r_at(t);
    for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < m; ++j) d.r[i * m + j] = 2.0f * (r[i * m + j] * d.q[j]);
    if (!g_is_zero) {
        multiply(transposed(x.e, k), plain(d.g, m), k, m, m, d.r, true);
        multiply(plain(d.g, m), transposed(r, m), m, m, k, d.e, true);
    }
    multiply(plain(x.e, k), plain(d.r, m), m, k, m, d.w, true);
    multiply(plain(w, m), transposed(d.r, m), m, m, k, d.e, true);
}

// Expects d.w, d.mu, d.q of the last step; leaves d.w of the start and d.e.
inline void run_back(const Refinement& c, const Steps& x, Gradients& d) {
    const int64_t m = c.n_fields, k = c.d_embed;
    for (int64_t i = 0; i < m * m; ++i) d.s[i] = Lane{};
    for (int64_t i = 0; i < m * k; ++i) d.e[i] = Lane{};
    for (int64_t t = c.n_steps; t >= 0; --t) {
        const bool last = t == c.n_steps;
        if (!last) {
            // From here on d.mu is the gradient before the projection of step t + 1.
            for (int64_t j = 0; j < m; ++j) d.q[j] = c.mu_from_old ? -c.mu_rate * d.mu[j] : Lane{};
            back_step_w(c, x, t, d);
        }
        if (t > 0) back_project(x.mu_at(t), m, d.mu);
        if (t > 0 && !c.mu_from_old)
            for (int64_t j = 0; j < m; ++j) d.q[j] -= c.mu_rate * d.mu[j];
        if (c.gram_form) back_residuals_gram(c, x, t, d, last);
        else back_residuals_direct(c, x, t, d, last);
    }
    if (c.gram_form) {
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < m; ++j) d.h[i * m + j] = d.s[i * m + j] + d.s[j * m + i];
        multiply(plain(d.h, m), plain(x.e, k), m, m, k, d.e, false);
    }
    if (c.unit_norm) multiply_by(broadcast(1.0f) / square_root(*x.norm), d.e, m * k);
}

inline void load_or_zero(const float* rows, int64_t stride, int64_t n_rows, int64_t n, Lane* lanes) {
    if (rows != nullptr) return rows_to_lanes(rows, stride, n_rows, n, lanes);
    for (int64_t i = 0; i < n; ++i) lanes[i] = Lane{};
}

// Embedded rows: field f of row r starts at e + r * row + f * field.
struct RowLayout {
    int64_t row, field;
};

inline void load_fields(const Refinement& c, const float* e, RowLayout at, int64_t n_rows, Lane* lanes) {
    for (int64_t f = 0; f < c.n_fields; ++f)
        rows_to_lanes(e + f * at.field, at.row, n_rows, c.d_embed, lanes + f * c.d_embed);
}

inline void store_fields(const Refinement& c, const Lane* lanes, float* e, RowLayout at, int64_t n_rows) {
    for (int64_t f = 0; f < c.n_fields; ++f)
        lanes_to_rows(lanes + f * c.d_embed, c.d_embed, e + f * at.field, at.row, n_rows);
}

}  // namespace FIELDDEP_ISA
}  // namespace fielddep
