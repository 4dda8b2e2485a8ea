// Python's side: tensors come by DLPack, of float32 (ids int64), on the CPU, contiguous.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>

#include "network_input.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace fielddep;

namespace {

template <int N>
using In = nb::ndarray<const float, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <int N>
using Out = nb::ndarray<float, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using AnyShape = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using MaybeIn2 = std::optional<In<2>>;

void expect(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

template <int N>
const float* at(const std::optional<In<N>>& tensor) {
    return tensor ? tensor->data() : nullptr;
}

Numbers numbers_of(const Lookup& lookup, const MaybeIn2& numbers, const std::vector<int64_t>& fields) {
    if (fields.empty()) return {};
    expect(numbers && int64_t(numbers->shape(0)) == lookup.n_rows && numbers->shape(1) == fields.size(),
           "numbers must have a row for every row of ids and a column for every numerical field");
    for (const int64_t field : fields) expect(field >= 0 && field < lookup.n_columns, "no such column of ids");
    return {numbers->data(), fields};
}

// A batch with the tensors that must live as long as it does.
struct Batch {
    std::shared_ptr<Lookup> lookup;
    MaybeIn2 numbers;
    std::optional<Refinement> refinement;
    int64_t n_fields;
    std::unique_ptr<NetworkInput> input;

    Batch(std::shared_ptr<Lookup> given, int64_t d_embed, MaybeIn2 given_numbers, const std::vector<int64_t>& fields,
          std::optional<Refinement> given_refinement, bool with_embeddings, int64_t n_threads)
        : lookup(std::move(given)), numbers(std::move(given_numbers)), refinement(given_refinement) {
        expect(d_embed > 0, "embeddings need at least one entry");
        n_fields = refinement ? refinement->n_fields : 0;
        expect(n_fields <= lookup->n_columns, "more fields to refine than columns of ids");
        expect(!refinement || refinement->d_embed == d_embed, "the refinement is for embeddings of another size");
        input = std::make_unique<NetworkInput>(lookup, d_embed, numbers_of(*lookup, numbers, fields),
                                               refinement ? &*refinement : nullptr, with_embeddings, n_threads);
    }

    void check(const In<3>& phi, const MaybeIn2& w0) const {
        expect(int64_t(phi.shape(0)) == lookup->n_columns * (lookup->n_columns - 1) / 2, "phi has another number of pairs");
        expect(phi.shape(1) == phi.shape(2), "phi must be square");
        expect(!refinement || (w0 && int64_t(w0->shape(0)) == n_fields && int64_t(w0->shape(1)) == n_fields),
               "W(0) must have a row and a column for every field");
    }
};

using Numbered = nb::ndarray<nb::pytorch, const int64_t, nb::ndim<1>, nb::device::cpu>;
using Weighted = nb::ndarray<nb::pytorch, const float, nb::ndim<1>, nb::device::cpu>;

Plan plan_of(const Lookup& lookup, const std::vector<Column>& columns, int64_t n_threads) {
    Plan plan{};
    plan.n_rows = lookup.n_rows;
    plan.n_columns = lookup.n_columns;
    plan.columns = columns.data();
    plan.n_threads = lookup.n_rows * lookup.n_columns < 4096 ? 1 : n_threads;
    return plan;
}

Rows rows_of(const std::optional<Ids>& ids, const std::optional<In<1>>& counts, size_t n, size_t d) {
    return {ids ? ids->data() : nullptr, counts ? counts->data() : nullptr, int64_t(n), int64_t(d)};
}

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // gradients that live until the interpreter ends are no leaks
    m.doc() = "Compiled forms of the training step; `fielddep.kernels` decides when they are used.";
    m.def("instruction_set", [] { return choose_kernels().name; });

    nb::class_<Refinement>(m, "Refinement")
        .def(
            "__init__",
            [](Refinement* self, int64_t n_fields, int64_t d_embed, int64_t n_steps, float w_rate, float mu_rate,
               float total, float mu_start, float value_scale, bool gram_form, bool mu_from_old, bool with_diagonal) {
                expect(n_fields > 0 && d_embed > 0 && n_steps >= 0, "sizes of a refinement must be positive");
                new (self) Refinement{n_fields, d_embed, n_steps, w_rate, mu_rate, total, mu_start, value_scale,
                                      gram_form, mu_from_old, with_diagonal};
            },
            nb::kw_only(), "n_fields"_a, "d_embed"_a, "n_steps"_a, "w_rate"_a, "mu_rate"_a, "total"_a, "mu_start"_a,
            "value_scale"_a, "gram_form"_a, "mu_from_old"_a, "with_diagonal"_a);

    nb::class_<Lookup>(m, "Lookup")
        .def("__init__",
             [](Lookup* self, Table ids, int64_t n_ids, int64_t n_threads) {
                 new (self) Lookup(ids.data(), int64_t(ids.shape(0)), int64_t(ids.shape(1)), n_ids, n_threads);
             })
        .def_ro("n_rows", &Lookup::n_rows)
        .def_prop_ro("ids",
                     [](std::shared_ptr<Lookup> self) {
                         return Numbered(self->ids.data(), {self->ids.size()}, nb::find(self));
                     })
        .def_prop_ro("counts", [](std::shared_ptr<Lookup> self) {
            return Weighted(self->counts.data(), {self->counts.size()}, nb::find(self));
        });

    nb::class_<Batch>(m, "NetworkInput")
        .def(nb::init<std::shared_ptr<Lookup>, int64_t, MaybeIn2, const std::vector<int64_t>&,
                      std::optional<Refinement>, bool, int64_t>(),
             "lookup"_a, "d_embed"_a, "numbers"_a.none(), "fields"_a, "refinement"_a.none(), "with_embeddings"_a,
             "n_threads"_a)
        .def_prop_ro("width", [](const Batch& self) { return self.input->width(); })
        .def(
            "forward",
            [](Batch& self, In<2> table, In<3> phi, MaybeIn2 w0, Out<2> inputs) {
                self.check(phi, w0);
                expect(table.shape(1) == phi.shape(1), "table and phi are of different sizes");
                expect(int64_t(inputs.shape(0)) == self.lookup->n_rows && int64_t(inputs.shape(1)) == self.input->width(),
                       "inputs have the wrong shape");
                const nb::gil_scoped_release released;
                self.input->forward(table.data(), phi.data(), at<2>(w0), inputs.data());
            },
            "table"_a, "phi"_a, "w0"_a.none(), "inputs"_a)
        .def(
            "backward",
            [](const Batch& self, In<3> phi, MaybeIn2 w0, In<2> d_inputs, Out<2> d_values, Out<3> d_phi, Out<2> d_w0) {
                self.check(phi, w0);
                expect(d_values.shape(0) == self.lookup->ids.size() && d_values.shape(1) == phi.shape(1),
                       "gradients of the values have the wrong shape");
                const nb::gil_scoped_release released;
                self.input->backward(phi.data(), at<2>(w0), d_inputs.data(), d_values.data(), d_phi.data(),
                                     d_w0.data());
            },
            "phi"_a, "w0"_a.none(), "d_inputs"_a, "d_values"_a, "d_phi"_a, "d_w0"_a);

    m.def("refine", [](const Refinement& c, int64_t n_threads, In<3> e, In<2> w0, Out<3> w, Out<2> mu, Out<2> q) {
        const nb::gil_scoped_release released;
        choose_kernels().refine_forward(c, n_threads, e.data(), int64_t(e.shape(0)), w0.data(), w.data(), mu.data(),
                                        q.data());
    });
    m.def(
        "back_refine",
        [](const Refinement& c, int64_t n_threads, In<3> e, In<2> w0, std::optional<In<3>> d_w, MaybeIn2 d_mu,
           MaybeIn2 d_q, Out<3> d_e, Out<2> d_w0) {
            const nb::gil_scoped_release released;
            choose_kernels().refine_backward(c, n_threads, e.data(), int64_t(e.shape(0)), w0.data(), at<3>(d_w),
                                             at<2>(d_mu), at<2>(d_q), d_e.data(), d_w0.data());
        },
        "settings"_a, "n_threads"_a, "e"_a, "w0"_a, "d_w"_a.none(), "d_mu"_a.none(), "d_q"_a.none(), "d_e"_a, "d_w0"_a);

    m.def(
        "sum_columns",
        [](const Lookup& lookup, MaybeIn2 numbers, const std::vector<int64_t>& fields, int64_t n_threads, In<2> values,
           Out<2> out) {
            const std::vector<Column> columns = columns_of(lookup, numbers_of(lookup, numbers, fields));
            choose_kernels().sum_columns(plan_of(lookup, columns, n_threads), values.data(), int64_t(values.shape(1)),
                                         out.data());
        },
        "lookup"_a, "numbers"_a.none(), "fields"_a, "n_threads"_a, "values"_a, "out"_a);
    m.def(
        "back_sum_columns",
        [](const Lookup& lookup, MaybeIn2 numbers, const std::vector<int64_t>& fields, int64_t n_threads, In<2> d_out,
           Out<2> d_values) {
            const std::vector<Column> columns = columns_of(lookup, numbers_of(lookup, numbers, fields));
            choose_kernels().back_sum_columns(plan_of(lookup, columns, n_threads), d_out.data(),
                                              int64_t(d_out.shape(1)), d_values.data());
        },
        "lookup"_a, "numbers"_a.none(), "fields"_a, "n_threads"_a, "d_out"_a, "d_values"_a);
    nb::class_<Rule>(m, "Rule").def(
        "__init__",
        [](Rule* self, float lr, float shrink, float ridge, float epsilon, float beta_mean, float beta_square) {
            new (self) Rule{lr, shrink, ridge, epsilon, beta_mean, beta_square};
        },
        nb::kw_only(), "lr"_a, "shrink"_a, "ridge"_a, "epsilon"_a, "beta_mean"_a, "beta_square"_a);
    m.def(
        "adagrad",
        [](const Rule& rule, std::optional<Ids> ids, std::optional<In<1>> counts, int64_t n_threads, In<2> gradient,
           AnyShape weight, AnyShape sum) {
            const nb::gil_scoped_release released;
            choose_kernels().adagrad(rule, rows_of(ids, counts, gradient.shape(0), gradient.shape(1)), n_threads,
                                     gradient.data(), weight.data(), sum.data());
        },
        "rule"_a, "ids"_a.none(), "counts"_a.none(), "n_threads"_a, "gradient"_a, "weight"_a, "sum"_a);
    m.def(
        "adam",
        [](const Rule& rule, std::optional<Ids> ids, std::optional<In<1>> counts, int64_t n_threads, In<2> gradient,
           AnyShape weight, AnyShape mean, AnyShape square, AnyShape steps) {
            const nb::gil_scoped_release released;
            choose_kernels().adam(rule, rows_of(ids, counts, gradient.shape(0), gradient.shape(1)), n_threads,
                                  gradient.data(), weight.data(), mean.data(), square.data(), steps.data());
        },
        "rule"_a, "ids"_a.none(), "counts"_a.none(), "n_threads"_a, "gradient"_a, "weight"_a, "mean"_a, "square"_a,
        "steps"_a);
}
