// The kernels of one instruction set; FIELDDEP_ISA names it.
#include "codes.h"
#include "input.h"
#include "mlp.h"
#include "rows.h"

namespace fielddep {
namespace FIELDDEP_ISA {

static void refine_forward(const Refinement& c, int64_t n_threads, const float* e, int64_t n_rows, const float* w0,
                           float* w, float* mu, float* q) {
    const int64_t m = c.n_fields, ff = m * m, fd = m * c.d_embed, scratch_size = steps_size(c, false) * kLanes;
    const Borrowed lanes(n_threads * scratch_size);
#pragma omp parallel num_threads(n_threads)
    {
        Scratch scratch(lanes.get() + thread_number() * scratch_size);
        Steps x = make_steps(c, false, scratch);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < n_rows; row += kLanes) {
            const int64_t n = smaller(kLanes, n_rows - row);
            load_fields(c, e + row * fd, {fd, c.d_embed}, n, x.e);
            run(c, x, w0, true);
            if (c.unit_norm) multiply_by(*x.norm, x.q, m);
            lanes_to_rows(x.w, ff, w + row * ff, ff, n);
            lanes_to_rows(x.mu, m, mu + row * m, m, n);
            lanes_to_rows(x.q, m, q + row * m, m, n);
        }
    }
}

// Gradients of the outputs may be null (zero); d_e and d_w0 are overwritten.
static void refine_backward(const Refinement& c, int64_t n_threads, const float* e, int64_t n_rows, const float* w0,
                            const float* d_w, const float* d_mu, const float* d_q, float* d_e, float* d_w0) {
    const int64_t m = c.n_fields, ff = m * m, fd = m * c.d_embed, n_groups = (n_rows + kLanes - 1) / kLanes;
    const int64_t scratch_size = (steps_size(c, true) + gradients_size(c)) * kLanes;
    const Borrowed sums(n_threads * ff * kLanes), lanes(n_threads * scratch_size);
    Lane* all_w0 = reinterpret_cast<Lane*>(sums.get());
#pragma omp parallel num_threads(n_threads)
    {
#pragma omp for schedule(static, 1)
        for (int64_t number = 0; number < n_threads; ++number) {
            Scratch scratch(lanes.get() + number * scratch_size);
            Steps x = make_steps(c, true, scratch);
            Gradients d = make_gradients(c, scratch);
            Lane* sum_w0 = all_w0 + number * ff;
            for (int64_t i = 0; i < ff; ++i) sum_w0[i] = Lane{};
            const int64_t last = smaller(n_groups * (number + 1) / n_threads * kLanes, n_rows);
            for (int64_t row = n_groups * number / n_threads * kLanes; row < last; row += kLanes) {
                const int64_t n = smaller(kLanes, last - row);
                load_fields(c, e + row * fd, {fd, c.d_embed}, n, x.e);
                run(c, x, w0, true);
                load_or_zero(d_w == nullptr ? nullptr : d_w + row * ff, ff, n, ff, d.w);
                load_or_zero(d_mu == nullptr ? nullptr : d_mu + row * m, m, n, m, d.mu);
                load_or_zero(d_q == nullptr ? nullptr : d_q + row * m, m, n, m, d.q);
                if (c.unit_norm) multiply_by(*x.norm, d.q, m);
                run_back(c, x, d);
                for (int64_t i = 0; i < ff; ++i) sum_w0[i] += d.w[i];
                store_fields(c, d.e, d_e + row * fd, {fd, c.d_embed}, n);
            }
        }
    }
    for (int64_t i = 0; i < ff; ++i) {
        d_w0[i] = 0;
        for (int64_t number = 0; number < n_threads; ++number) d_w0[i] += sum_of_lanes(all_w0[number * ff + i]);
    }
}

#define FIELDDEP_TEXT(x) #x
#define FIELDDEP_NAME(x) FIELDDEP_TEXT(x)

extern const Kernels kernels;
const Kernels kernels = {FIELDDEP_NAME(FIELDDEP_ISA), input_forward, input_backward,   refine_forward, refine_backward,
                         sum_columns,                 back_sum_columns, adagrad,       adam,           mlp_forward,
                         mlp_backward,                number_codes};

}  // namespace FIELDDEP_ISA
}  // namespace fielddep
