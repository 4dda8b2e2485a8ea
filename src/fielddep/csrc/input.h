// From distinct values to the network's input: pair products and refined dependencies of every row, and back.
//
// A batch holds far fewer distinct values than rows in most fields. Of a pair, the field with fewer distinct values is
// the host: the pair's matrix is applied to its distinct values only, and a row's product is one dot product of the
// host's applied vector with the guest's embedding. Where both fields have few values, even that is done once per
// two values. Sums have another order than in the plain form; nothing else differs.
//
// Phi of pair p is stored transposed: product = sum_{d,c} phi[p][d][c] e_i[c] e_j[d].
#pragma once

#include "refine.h"

namespace fielddep {
namespace FIELDDEP_ISA {

// --- pair matrices ---------------------------------------------------------------------------------------------------

// Matrices of a host side by side: packed[c][g * kp + d] takes entry c of the host's value to entry d of guest g's.
inline void pack(const Plan& x, const Host& host, const float* phi, float* packed) {
    const int64_t k = x.d_embed, kp = x.kp();
    for (int64_t g = 0; g < host.n_guests; ++g) {
        const Guest& guest = host.guests[g];
        const float* from = phi + guest.pair * k * k;
        const int64_t c_step = guest.guest_is_second ? 1 : k, d_step = guest.guest_is_second ? k : 1;
        for (int64_t c = 0; c < k; ++c) {
            float* to = packed + c * host.width + g * kp;
            for (int64_t d = 0; d < k; ++d) to[d] = from[c * c_step + d * d_step];
            for (int64_t d = k; d < kp; ++d) to[d] = 0;
        }
    }
}

inline void transpose_packed(const Plan& x, const Host& host, const float* packed, float* packed_t) {
    const int64_t k = x.d_embed, kp = x.kp();
    for (int64_t n = 0; n < host.width; ++n) {
        for (int64_t c = 0; c < k; ++c) packed_t[n * kp + c] = packed[c * host.width + n];
        for (int64_t c = k; c < kp; ++c) packed_t[n * kp + c] = 0;
    }
}

inline void unpack(const Plan& x, const Host& host, const float* packed, float* phi) {
    const int64_t k = x.d_embed, kp = x.kp();
    for (int64_t g = 0; g < host.n_guests; ++g) {
        const Guest& guest = host.guests[g];
        float* to = phi + guest.pair * k * k;
        const int64_t c_step = guest.guest_is_second ? 1 : k, d_step = guest.guest_is_second ? k : 1;
        for (int64_t c = 0; c < k; ++c)
            for (int64_t d = 0; d < k; ++d) to[c * c_step + d * d_step] = packed[c * host.width + g * kp + d];
    }
}

// --- forward ---------------------------------------------------------------------------------------------------------

inline const float* values_of(const Plan& x, const float* values, int64_t field) {
    return values + x.columns[field].start * x.kp();
}

// All that a host can do before any row is met: its values times its matrices, and tables of products.
inline void prepare_host(const Plan& x, const Host& host, const float* phi, Forward& to) {
    const int64_t k = x.d_embed, kp = x.kp(), n_slots = x.columns[host.field].n_slots;
    float* packed = to.packed + host.packed;
    pack(x, host, phi, packed);
    if (host.by_row) return;
    float* applied = to.applied + host.applied;
    const float* values = values_of(x, to.values, host.field);
    for (int64_t slot = 0; slot < n_slots; slot += kRowBlock) {
        const Product product{values + slot * kp, kp, 1, packed, host.width, applied + slot * host.width, host.width};
        multiply_matrices(product, smaller(kRowBlock, n_slots - slot), host.width, k, false);
    }
    for (int64_t g = host.n_rowwise; g < host.n_guests; ++g) {
        const Guest& guest = host.guests[g];
        const int64_t n_others = x.columns[guest.field].n_slots;
        const float* others = values_of(x, to.values, guest.field);
        float* cells = to.cells + guest.cells;
        for (int64_t slot = 0; slot < n_slots; ++slot)
            for (int64_t other = 0; other < n_others; ++other)
                cells[slot * n_others + other] = dot(applied + slot * host.width + g * kp, others + other * kp, kp);
    }
}

inline void gather(const Plan& x, int64_t row, const float* values, float* e) {
    const int64_t kp = x.kp();
    for (int64_t f = 0; f < x.n_columns; ++f) {
        const Column& column = x.columns[f];
        const float* from = values + (column.start + column.slot_of_row[row]) * kp;
        const float scale = scale_of(column, row);
        for (int64_t i = 0; i < kp; i += kVector) store(e + f * kp + i, load(from + i) * scale);
    }
}

inline void rowwise_products(const Host& host, int64_t kp, const float* left, const float* e_row, float* out) {
    int64_t g = 0;
    for (; g + 8 <= host.n_rowwise; g += 8) {
        Vector total[8];
        for (int q = 0; q < 8; ++q) {
            const float *a = left + (g + q) * kp, *b = e_row + host.guests[g + q].field * kp;
            total[q] = Vector{};
            for (int64_t i = 0; i < kp; i += kVector) total[q] += load(a + i) * load(b + i);
        }
        const Vector products = sums_of_eight(total);
        for (int q = 0; q < 8; ++q) out[host.guests[g + q].pair] = products[q];
    }
    for (; g < host.n_rowwise; ++g)
        out[host.guests[g].pair] = dot(left + g * kp, e_row + host.guests[g].field * kp, kp);
}

// A block of rows of a host times its matrices.
inline void apply_block(const Plan& x, const Host& host, const Forward& from, int64_t start, int64_t n, float* block) {
    const float* e = from.e + start * x.row_size() + host.field * x.kp();
    const Product product{e, x.row_size(), 1, from.packed + host.packed, host.width, block, host.width};
    multiply_matrices(product, n, host.width, x.d_embed, false);
}

// Products of one row without any packed matrix: for a few rows packing would cost more than it gains.
inline void products_of_row(const Plan& x, const float* phi, const float* e_row, float* out) {
    const int64_t k = x.d_embed, kp = x.kp();
    for (int64_t i = 0; i < x.n_columns; ++i)
        for (int64_t j = i + 1; j < x.n_columns; ++j, phi += k * k) {
            const float *left = e_row + i * kp, *right = e_row + j * kp;
            float total = 0;
            for (int64_t d = 0; d < k; ++d) {
                float sum = 0;
#pragma omp simd reduction(+ : sum)
                for (int64_t c = 0; c < k; ++c) sum += phi[d * k + c] * left[c];
                total += sum * right[d];
            }
            *out++ = total;
        }
}

inline void products_of_block(const Plan& x, const Forward& from, int64_t start, int64_t n, float* block,
                              float* inputs) {
    const int64_t kp = x.kp();
    for (int64_t f = 0; f < x.n_columns; ++f) {
        const Host& host = x.hosts[f];
        if (host.n_guests == 0) continue;
        if (host.by_row) apply_block(x, host, from, start, n, block);
        const int32_t* slots = x.columns[f].slot_of_row;
        for (int64_t row = start; row < start + n; ++row) {
            float* out = inputs + row * x.inputs_width;
            const float* left = host.by_row ? block + (row - start) * host.width
                                            : from.applied + host.applied + slots[row] * host.width;
            rowwise_products(host, kp, left, from.e + row * x.row_size(), out);
            for (int64_t g = host.n_rowwise; g < host.n_guests; ++g) {
                const Guest& guest = host.guests[g];
                const Column& other = x.columns[guest.field];
                out[guest.pair] = from.cells[guest.cells + slots[row] * other.n_slots + other.slot_of_row[row]];
            }
        }
    }
}

inline void refine_block(const Plan& x, const float* w0, const Forward& from, int64_t start, int64_t n, Steps& steps,
                         Lane* out, float* inputs) {
    const Refinement& c = *x.refinement;
    for (int64_t row = start; row < start + n; row += kLanes) {
        const int64_t n_rows = smaller(kLanes, start + n - row);
        load_fields(c, from.e + row * x.row_size(), {x.row_size(), x.kp()}, n_rows, steps.e);
        run(c, steps, w0, false);
        const int64_t n_values = weighted_values(c, steps.w, steps.mu, out);
        lanes_to_rows(out, n_values, inputs + row * x.inputs_width + x.n_pairs, x.inputs_width, n_rows);
    }
}

// From the distinct values in `to.values` to the network's input; the other buffers of `to` are filled on the way.
inline void input_forward(const Plan& x, const float* phi, const float* w0, Forward& to, float* inputs) {
    const Refinement none{};
    const Refinement& c = x.refinement == nullptr ? none : *x.refinement;
    const int64_t block_size = kRowBlock * x.widest;
    const int64_t scratch_size = (steps_size(c, false) + c.n_fields * c.n_fields) * kLanes;
    const Borrowed blocks(x.n_threads * block_size), lanes(x.n_threads * scratch_size);
#pragma omp parallel num_threads(x.n_threads)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t f = 0; f < x.n_columns; ++f)
            if (!x.few_rows) prepare_host(x, x.hosts[f], phi, to);
        float* block = blocks.get() + thread_number() * block_size;
        Scratch scratch(lanes.get() + thread_number() * scratch_size);
        Steps steps = make_steps(c, false, scratch);
        Lane* out = scratch.take(c.n_fields * c.n_fields);
#pragma omp for schedule(static)
        for (int64_t start = 0; start < x.n_rows; start += kRowBlock) {
            const int64_t n = smaller(kRowBlock, x.n_rows - start);
            for (int64_t row = start; row < start + n; ++row) gather(x, row, to.values, to.e + row * x.row_size());
            if (!x.few_rows) products_of_block(x, to, start, n, block, inputs);
            for (int64_t row = start; x.few_rows && row < start + n; ++row)
                products_of_row(x, phi, to.e + row * x.row_size(), inputs + row * x.inputs_width);
            if (x.refinement != nullptr) refine_block(x, w0, to, start, n, steps, out, inputs);
            if (x.inputs_width == x.n_known) continue;
            for (int64_t row = start; row < start + n; ++row)
                for (int64_t f = 0; f < x.n_columns; ++f)
                    copy(inputs + row * x.inputs_width + x.n_known + f * x.d_embed,
                         to.e + row * x.row_size() + f * x.kp(), x.d_embed);
        }
    }
}

// --- backward --------------------------------------------------------------------------------------------------------

// What a share of the rows adds to.
struct Share {
    float *d_applied, *d_cells, *d_packed;
};

// Both gradients of a dot product; with `fresh`, the first one has not been written before.
inline void back_dot(const float* applied, const float* guest, float d_product, int64_t n, float* d_applied,
                     float* d_guest, bool fresh) {
    const Vector scale = spread(d_product);
    for (int64_t i = 0; i < n; i += kVector) {
        store(d_guest + i, load(d_guest + i) + scale * load(applied + i));
        const Vector d = scale * load(guest + i);
        store(d_applied + i, fresh ? d : load(d_applied + i) + d);
    }
}

inline void back_rowwise(const Host& host, int64_t kp, const float* left, const float* e_row, const float* d_out,
                         float* d_left, float* d_e_row) {
    for (int64_t g = 0; g < host.n_rowwise; ++g) {
        const int64_t right = host.guests[g].field * kp;
        back_dot(left + g * kp, e_row + right, d_out[host.guests[g].pair], kp, d_left + g * kp, d_e_row + right,
                 host.by_row);
    }
}

inline void back_products_of_block(const Plan& x, const Forward& from, const Backward& to, const float* d_inputs,
                                   int64_t start, int64_t n, float* block, float* d_block, Share& share) {
    const int64_t kp = x.kp();
    for (int64_t f = 0; f < x.n_columns; ++f) {
        const Host& host = x.hosts[f];
        if (host.n_guests == 0) continue;
        if (host.by_row) apply_block(x, host, from, start, n, block);
        const int32_t* slots = x.columns[f].slot_of_row;
        for (int64_t row = start; row < start + n; ++row) {
            const float* d_out = d_inputs + row * x.inputs_width;
            const int64_t at = host.by_row ? (row - start) * host.width : host.applied + slots[row] * host.width;
            back_rowwise(host, kp, (host.by_row ? block : from.applied) + at, from.e + row * x.row_size(), d_out,
                         (host.by_row ? d_block : share.d_applied) + at, to.d_e + row * x.row_size());
            for (int64_t g = host.n_rowwise; g < host.n_guests; ++g) {
                const Guest& guest = host.guests[g];
                const Column& other = x.columns[guest.field];
                share.d_cells[guest.cells + slots[row] * other.n_slots + other.slot_of_row[row]] += d_out[guest.pair];
            }
        }
        if (!host.by_row) continue;
        const int64_t at = start * x.row_size() + f * kp;
        const Product to_e{d_block, host.width, 1, to.packed_t + host.packed / x.d_embed * kp, kp, to.d_e + at,
                           x.row_size()};
        multiply_matrices(to_e, n, kp, host.width, true);
        const Product to_phi{from.e + at, 1, x.row_size(), d_block, host.width, share.d_packed + host.packed,
                             host.width};
        multiply_matrices(to_phi, x.d_embed, host.width, n, true);
    }
}

inline void back_refine_block(const Plan& x, const float* w0, const Forward& from, const Backward& to,
                              const float* d_inputs, int64_t start, int64_t n, Steps& steps, Gradients& d, Lane* in,
                              Lane* d_w0) {
    const Refinement& c = *x.refinement;
    const int64_t m = c.n_fields;
    const RowLayout at{x.row_size(), x.kp()};
    for (int64_t row = start; row < start + n; row += kLanes) {
        const int64_t n_rows = smaller(kLanes, start + n - row);
        load_fields(c, from.e + row * x.row_size(), at, n_rows, steps.e);
        run(c, steps, w0, true);
        for (int64_t i = 0; i < m * m; ++i) d.w[i] = Lane{};
        for (int64_t j = 0; j < m; ++j) d.mu[j] = d.q[j] = Lane{};
        rows_to_lanes(d_inputs + row * x.inputs_width + x.n_pairs, x.inputs_width, n_rows, n_dependency_values(c), in);
        add_values_gradient(c, steps.w_at(c.n_steps), steps.mu_at(c.n_steps), in, d);
        run_back(c, steps, d);
        for (int64_t i = 0; i < m * m; ++i) d_w0[i] += d.w[i];
        store_fields(c, d.e, to.d_e + row * x.row_size(), at, n_rows);
    }
}

// Everything that ends in the values and matrices of one field, after all rows have been met.
inline void back_field(const Plan& x, const Forward& from, const Backward& to, int64_t f, float* d_values_out,
                       float* d_phi) {
    const int64_t k = x.d_embed, kp = x.kp();
    const Column& column = x.columns[f];
    const Host& host = x.hosts[f];
    float* d_values = to.d_values + column.start * kp;
    clear(d_values, column.n_slots * kp);
    for (int64_t row = 0; row < x.n_rows; ++row) {
        float* into = d_values + column.slot_of_row[row] * kp;
        const float* d_e = to.d_e + row * x.row_size() + f * kp;
        const float scale = scale_of(column, row);
        for (int64_t i = 0; i < kp; i += kVector) store(into + i, load(into + i) + load(d_e + i) * scale);
    }
    for (int64_t h = 0; h < x.n_columns; ++h) {
        const Host& other = x.hosts[h];
        for (int64_t g = other.n_rowwise; g < other.n_guests; ++g) {
            if (other.guests[g].field != f) continue;
            const float* d_cells = to.d_cells + other.guests[g].cells;
            const float* applied = from.applied + other.applied + g * kp;
            for (int64_t slot = 0; slot < x.columns[h].n_slots; ++slot)
                for (int64_t mine = 0; mine < column.n_slots; ++mine) {
                    const Vector scale = spread(d_cells[slot * column.n_slots + mine]);
                    float* into = d_values + mine * kp;
                    const float* left = applied + slot * other.width;
                    for (int64_t i = 0; i < kp; i += kVector) store(into + i, load(into + i) + scale * load(left + i));
                }
        }
    }
    if (host.n_guests > 0) {
        float* d_packed = to.d_packed + host.packed;
        if (!host.by_row) {
            float* d_applied = to.d_applied + host.applied;
            for (int64_t g = host.n_rowwise; g < host.n_guests; ++g) {
                const Guest& guest = host.guests[g];
                const int64_t n_others = x.columns[guest.field].n_slots;
                const Product product{to.d_cells + guest.cells, n_others, 1, values_of(x, from.values, guest.field), kp,
                                      d_applied + g * kp, host.width};
                multiply_matrices(product, column.n_slots, kp, n_others, false);
            }
            const Product to_values{d_applied, host.width, 1, to.packed_t + host.packed / k * kp, kp, d_values, kp};
            multiply_matrices(to_values, column.n_slots, kp, host.width, true);
            const float* values = values_of(x, from.values, f);
            for (int64_t slot = 0; slot < column.n_slots; slot += kRowBlock) {
                const Product to_phi{values + slot * kp, 1, kp, d_applied + slot * host.width, host.width, d_packed,
                                     host.width};
                multiply_matrices(to_phi, k, host.width, smaller(kRowBlock, column.n_slots - slot), slot > 0);
            }
        }
        unpack(x, host, d_packed, d_phi);
    }
    for (int64_t slot = 0; slot < column.n_slots; ++slot)
        copy(d_values_out + (column.start + slot) * k, d_values + slot * kp, k);
}

// Sum of the shares' copies, in the first one; threads share out the entries.
inline void join_shares(float* shares, int64_t n_shares, int64_t size) {
#pragma omp for schedule(static)
    for (int64_t i = 0; i < size; i += kVector)
        for (int64_t share = 1; share < n_shares; ++share)
            store(shares + i, load(shares + i) + load(shares + share * size + i));
}

// d_values (slots, k), d_phi and d_w0 are overwritten.
inline void input_backward(const Plan& x, const float* w0, const Forward& from, Backward& to, const float* d_inputs,
                           float* d_values, float* d_phi, float* d_w0) {
    const Refinement none{};
    const Refinement& c = x.refinement == nullptr ? none : *x.refinement;
    const int64_t ff = c.n_fields * c.n_fields, d_w0_size = ff * kLanes;
    const int64_t n_blocks = (x.n_rows + kRowBlock - 1) / kRowBlock, block_size = kRowBlock * x.widest;
    const int64_t scratch_size = (steps_size(c, true) + gradients_size(c) + ff) * kLanes;
    const Borrowed blocks(2 * x.n_shares * block_size), lanes(x.n_shares * scratch_size);
#pragma omp parallel num_threads(x.n_threads)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t f = 0; f < x.n_columns; ++f) {
            const Host& host = x.hosts[f];
            transpose_packed(x, host, from.packed + host.packed, to.packed_t + host.packed / x.d_embed * x.kp());
        }
        // A share of the rows has its own sums, whichever thread works on it: equal settings give equal bits.
#pragma omp for schedule(static, 1)
        for (int64_t number = 0; number < x.n_shares; ++number) {
            float *block = blocks.get() + 2 * number * block_size, *d_block = block + block_size;
            Scratch scratch(lanes.get() + number * scratch_size);
            Steps steps = make_steps(c, true, scratch);
            Gradients d = make_gradients(c, scratch);
            Lane* in = scratch.take(ff);
            Share share{to.d_applied + number * x.applied_size, to.d_cells + number * x.cells_size,
                        to.d_packed + number * x.packed_size};
            clear(share.d_applied, x.applied_size);
            clear(share.d_cells, x.cells_size);
            clear(share.d_packed, x.packed_size);
            Lane* sum_w0 = reinterpret_cast<Lane*>(to.d_w0 + number * d_w0_size);
            for (int64_t i = 0; i < ff; ++i) sum_w0[i] = Lane{};
            const int64_t last = smaller(n_blocks * (number + 1) / x.n_shares * kRowBlock, x.n_rows);
            for (int64_t start = n_blocks * number / x.n_shares * kRowBlock; start < last; start += kRowBlock) {
                const int64_t n = smaller(kRowBlock, last - start);
                clear(to.d_e + start * x.row_size(), n * x.row_size());
                if (x.refinement != nullptr)
                    back_refine_block(x, w0, from, to, d_inputs, start, n, steps, d, in, sum_w0);
                if (x.inputs_width > x.n_known)
                    for (int64_t row = start; row < start + n; ++row)
                        for (int64_t f = 0; f < x.n_columns; ++f)
                            for (int64_t i = 0; i < x.d_embed; ++i)
                                to.d_e[row * x.row_size() + f * x.kp() + i] +=
                                    d_inputs[row * x.inputs_width + x.n_known + f * x.d_embed + i];
                back_products_of_block(x, from, to, d_inputs, start, n, block, d_block, share);
            }
        }
        join_shares(to.d_applied, x.n_shares, x.applied_size);
        join_shares(to.d_cells, x.n_shares, x.cells_size);
        join_shares(to.d_packed, x.n_shares, x.packed_size);
#pragma omp for schedule(dynamic, 1)
        for (int64_t f = 0; f < x.n_columns; ++f) back_field(x, from, to, f, d_values, d_phi);
    }
    for (int64_t i = 0; i < ff; ++i) {
        d_w0[i] = 0;
        for (int64_t number = 0; number < x.n_shares; ++number)
            d_w0[i] += sum_of_lanes(reinterpret_cast<Lane*>(to.d_w0 + number * d_w0_size)[i]);
    }
}

}  // namespace FIELDDEP_ISA
}  // namespace fielddep
