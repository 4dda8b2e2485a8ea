// Python's side: tensors come by DLPack, of float32 (ids int64), on the CPU, contiguous. What is written to must be so
// already (`noconvert`): a converted copy would take the result and vanish. Shapes are checked here and nowhere else.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>

#include "cells.h"
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

template <class Tensor>
void expect_shape(const Tensor& tensor, std::initializer_list<int64_t> shape, const char* what) {
    size_t axis = 0;
    for (const int64_t size : shape) expect(int64_t(tensor.shape(axis++)) == size, what);
}

template <class Tensor>
void expect_shape(const std::optional<Tensor>& tensor, std::initializer_list<int64_t> shape, const char* what) {
    if (tensor) expect_shape(*tensor, shape, what);
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
    int64_t d_embed, n_fields;
    std::unique_ptr<NetworkInput> input;

    Batch(std::shared_ptr<Lookup> given, int64_t size, MaybeIn2 given_numbers, const std::vector<int64_t>& fields,
          std::optional<Refinement> given_refinement, bool with_embeddings, bool keep, int64_t n_threads)
        : lookup(std::move(given)), numbers(std::move(given_numbers)), refinement(given_refinement), d_embed(size) {
        expect(d_embed > 0, "embeddings need at least one entry");
        expect(n_threads > 0, "at least one thread is needed");
        n_fields = refinement ? refinement->n_fields : 0;
        expect(n_fields <= lookup->n_columns, "more fields to refine than columns of ids");
        expect(!refinement || refinement->d_embed == d_embed, "the refinement is for embeddings of another size");
        input = std::make_unique<NetworkInput>(lookup, d_embed, numbers_of(*lookup, numbers, fields),
                                               refinement ? &*refinement : nullptr, with_embeddings, keep, n_threads);
    }

    int64_t n_pairs() const { return lookup->n_columns * (lookup->n_columns - 1) / 2; }

    void forward(In<2> table, In<3> phi, MaybeIn2 w0, Out<2> inputs) {
        expect_shape(table, {lookup->n_ids, d_embed}, "the table must have a row for every id");
        expect_shape(phi, {n_pairs(), d_embed, d_embed}, "phi must have a square matrix for every pair");
        expect(bool(w0) == bool(refinement), "W(0) belongs to a refinement");
        expect_shape(w0, {n_fields, n_fields}, "W(0) must have a row and a column for every field");
        expect_shape(inputs, {lookup->n_rows, input->width()}, "inputs have the wrong shape");
        const nb::gil_scoped_release released;
        input->forward(table.data(), phi.data(), at<2>(w0), inputs.data());
    }

    void backward(MaybeIn2 w0, In<2> d_inputs, Out<2> d_values, Out<3> d_phi, Out<2> d_w0) const {
        expect(input->can_go_back(), "nothing was kept to go back with");
        expect(bool(w0) == bool(refinement), "W(0) belongs to a refinement");
        expect_shape(w0, {n_fields, n_fields}, "W(0) must have a row and a column for every field");
        expect_shape(d_inputs, {lookup->n_rows, input->width()}, "gradients of the inputs have the wrong shape");
        expect_shape(d_values, {int64_t(lookup->ids.size()), d_embed}, "gradients of the values have the wrong shape");
        expect_shape(d_phi, {n_pairs(), d_embed, d_embed}, "gradients of phi have the wrong shape");
        expect_shape(d_w0, {n_fields, n_fields}, "gradients of W(0) have the wrong shape");
        const nb::gil_scoped_release released;
        input->backward(at<2>(w0), d_inputs.data(), d_values.data(), d_phi.data(), d_w0.data());
    }
};

int64_t threads_for(int64_t n_threads, int64_t n_groups) {
    expect(n_threads > 0, "at least one thread is needed");
    return std::max<int64_t>(1, std::min(n_threads, n_groups));
}

int64_t threads_for(const Refinement& c, int64_t n_threads, const In<3>& e) {
    expect_shape(e, {int64_t(e.shape(0)), c.n_fields, c.d_embed}, "embeddings must have the sizes of the refinement");
    return threads_for(n_threads, (int64_t(e.shape(0)) + kLanes - 1) / kLanes);
}

void refine(const Refinement& c, int64_t n_threads, In<3> e, In<2> w0, Out<3> w, Out<2> mu, Out<2> q) {
    const int64_t n_rows = int64_t(e.shape(0)), m = c.n_fields, threads = threads_for(c, n_threads, e);
    expect_shape(w0, {m, m}, "W(0) must have a row and a column for every field");
    expect_shape(w, {n_rows, m, m}, "W has the wrong shape");
    expect_shape(mu, {n_rows, m}, "mu has the wrong shape");
    expect_shape(q, {n_rows, m}, "squared residuals have the wrong shape");
    const nb::gil_scoped_release released;
    choose_kernels().refine_forward(c, threads, e.data(), n_rows, w0.data(), w.data(), mu.data(), q.data());
}

void back_refine(const Refinement& c, int64_t n_threads, In<3> e, In<2> w0, std::optional<In<3>> d_w, MaybeIn2 d_mu,
                 MaybeIn2 d_q, Out<3> d_e, Out<2> d_w0) {
    const int64_t n_rows = int64_t(e.shape(0)), m = c.n_fields, threads = threads_for(c, n_threads, e);
    expect_shape(w0, {m, m}, "W(0) must have a row and a column for every field");
    expect_shape(d_w, {n_rows, m, m}, "gradients of W have the wrong shape");
    expect_shape(d_mu, {n_rows, m}, "gradients of mu have the wrong shape");
    expect_shape(d_q, {n_rows, m}, "gradients of the squared residuals have the wrong shape");
    expect_shape(d_e, {n_rows, m, c.d_embed}, "gradients of the embeddings have the wrong shape");
    expect_shape(d_w0, {m, m}, "gradients of W(0) have the wrong shape");
    const nb::gil_scoped_release released;
    choose_kernels().refine_backward(c, threads, e.data(), n_rows, w0.data(), at<3>(d_w), at<2>(d_mu), at<2>(d_q),
                                     d_e.data(), d_w0.data());
}

Plan plan_of(const Lookup& lookup, const std::vector<Column>& columns, int64_t n_threads) {
    Plan plan{};
    plan.n_rows = lookup.n_rows;
    plan.n_columns = lookup.n_columns;
    plan.columns = columns.data();
    plan.n_threads = threads_for(n_threads, lookup.n_rows * lookup.n_columns < kWorthThreads ? 1 : n_threads);
    return plan;
}

void sum_columns(const Lookup& lookup, MaybeIn2 numbers, const std::vector<int64_t>& fields, int64_t n_threads,
                 In<2> values, Out<2> out) {
    const int64_t d = int64_t(values.shape(1));
    expect_shape(values, {int64_t(lookup.ids.size()), d}, "a row of values is needed for every distinct id");
    expect_shape(out, {lookup.n_rows, d}, "the sums have the wrong shape");
    const std::vector<Column> columns = columns_of(lookup, numbers_of(lookup, numbers, fields));
    const nb::gil_scoped_release released;
    choose_kernels().sum_columns(plan_of(lookup, columns, n_threads), values.data(), d, out.data());
}

void back_sum_columns(const Lookup& lookup, MaybeIn2 numbers, const std::vector<int64_t>& fields, int64_t n_threads,
                      In<2> d_out, Out<2> d_values) {
    const int64_t d = int64_t(d_out.shape(1));
    expect_shape(d_out, {lookup.n_rows, d}, "gradients of the sums have the wrong shape");
    expect_shape(d_values, {int64_t(lookup.ids.size()), d}, "gradients of the values have the wrong shape");
    const std::vector<Column> columns = columns_of(lookup, numbers_of(lookup, numbers, fields));
    const nb::gil_scoped_release released;
    choose_kernels().back_sum_columns(plan_of(lookup, columns, n_threads), d_out.data(), d, d_values.data());
}

// The rows that a step moves; weight and state must hold them.
Rows rows_of(const std::optional<Ids>& ids, const std::optional<In<1>>& counts, const In<2>& gradient,
             std::initializer_list<const AnyShape*> moved, int64_t n_threads) {
    const int64_t n = int64_t(gradient.shape(0)), d = int64_t(gradient.shape(1));
    expect(n_threads > 0, "at least one thread is needed");
    expect(!ids || int64_t(ids->shape(0)) == n, "an id is needed for every row of the gradient");
    expect(!counts || int64_t(counts->shape(0)) == n, "a count is needed for every row of the gradient");
    int64_t highest = n - 1;
    if (ids) {
        highest = -1;
        for (int64_t i = 0; i < n; ++i) {
            expect(ids->data()[i] >= 0, "ids must not be negative");
            highest = std::max(highest, ids->data()[i]);
        }
    }
    for (const AnyShape* tensor : moved)
        expect(int64_t(tensor->size()) >= (highest + 1) * d, "weight and state must have a row for every id");
    return {ids ? ids->data() : nullptr, counts ? counts->data() : nullptr, n, d};
}

void adagrad(const Rule& rule, std::optional<Ids> ids, std::optional<In<1>> counts, int64_t n_threads, In<2> gradient,
             AnyShape weight, AnyShape sum) {
    const Rows rows = rows_of(ids, counts, gradient, {&weight, &sum}, n_threads);
    const nb::gil_scoped_release released;
    choose_kernels().adagrad(rule, rows, n_threads, gradient.data(), weight.data(), sum.data());
}

void adam(const Rule& rule, std::optional<Ids> ids, std::optional<In<1>> counts, int64_t n_threads, In<2> gradient,
          AnyShape weight, AnyShape mean, AnyShape square, AnyShape steps) {
    const Rows rows = rows_of(ids, counts, gradient, {&weight, &mean, &square}, n_threads);
    expect(steps.size() * size_t(rows.d) >= (ids ? weight.size() : 1), "a number of steps is needed for every row");
    const nb::gil_scoped_release released;
    choose_kernels().adam(rule, rows, n_threads, gradient.data(), weight.data(), mean.data(), square.data(),
                          steps.data());
}

// Steps on several dense weights, each with state of its own.
void adam_dense(const Rule& rule, int64_t n_threads, const std::vector<In<1>>& gradients,
                const std::vector<AnyShape>& weights, const std::vector<AnyShape>& means,
                const std::vector<AnyShape>& squares, const std::vector<AnyShape>& steps) {
    const size_t n = gradients.size();
    expect(n_threads > 0, "at least one thread is needed");
    expect(weights.size() == n && means.size() == n && squares.size() == n && steps.size() == n,
           "every gradient needs a weight and its state");
    for (size_t i = 0; i < n; ++i)
        expect(weights[i].size() == gradients[i].size() && means[i].size() == gradients[i].size() &&
                   squares[i].size() == gradients[i].size() && steps[i].size() > 0,
               "weights and state must have the size of the gradient");
    const nb::gil_scoped_release released;
    for (size_t i = 0; i < n; ++i)
        choose_kernels().adam(rule, {nullptr, nullptr, 1, int64_t(gradients[i].size())}, n_threads, gradients[i].data(),
                              weights[i].data(), means[i].data(), squares[i].data(), steps[i].data());
}

// The weights of a network, outermost last: `weights` and `biases` of every layer.
Mlp mlp_of(const In<2>& inputs, const In<1>& gate, const std::vector<In<2>>& weights, const std::vector<In<1>>& biases,
           const In<2>& linear, int64_t n_dropped, int64_t n_threads) {
    expect(!weights.empty() && weights.size() == biases.size(), "every layer needs weights and a bias");
    expect(int64_t(weights.size()) <= kMostLayers + 1, "too many layers");
    expect(n_threads > 0, "at least one thread is needed");
    expect(n_dropped >= 0 && n_dropped < 256, "some entries must stay");
    Mlp x{};
    x.n_rows = int64_t(inputs.shape(0)), x.n_inputs = int64_t(inputs.shape(1));
    x.n_hidden = int64_t(weights.size()) - 1, x.n_outputs = int64_t(weights.back().shape(0));
    x.n_threads = threads_for(n_threads, x.n_rows / kRowsOfThread);
    x.n_dropped = n_dropped;
    int64_t width = x.n_inputs;
    for (int64_t layer = 0; layer <= x.n_hidden; ++layer) {
        const int64_t next = int64_t(weights[layer].shape(0));
        expect(layer == x.n_hidden || next % kVector == 0, "hidden layers must have a multiple of eight entries");
        expect_shape(weights[layer], {next, width}, "a layer must have a weight for every input");
        expect_shape(biases[layer], {next}, "a layer must have a bias for every output");
        x.weights[layer] = weights[layer].data(), x.biases[layer] = biases[layer].data();
        if (layer < x.n_hidden) x.widths[layer] = next;
        width = next;
    }
    expect_shape(gate, {x.n_inputs}, "every input needs a gate");
    expect_shape(linear, {x.n_outputs, x.n_inputs}, "the linear way must have a weight for every input");
    x.inputs = inputs.data(), x.gate = gate.data(), x.linear = linear.data();
    return x;
}

void mlp_forward(In<2> inputs, In<1> gate, const std::vector<In<2>>& weights, const std::vector<In<1>>& biases,
                 In<2> linear, int64_t n_dropped, int64_t seed, int64_t n_threads, Out<2> hidden, Out<2> logits) {
    Mlp x = mlp_of(inputs, gate, weights, biases, linear, n_dropped, n_threads);
    x.seed = uint64_t(seed);
    expect_shape(hidden, {x.n_rows, hidden_width(x)}, "hidden entries have the wrong shape");
    expect_shape(logits, {x.n_rows, x.n_outputs}, "logits have the wrong shape");
    const nb::gil_scoped_release released;
    choose_kernels().mlp_forward(x, hidden.data(), logits.data());
}

void mlp_backward(In<2> inputs, In<1> gate, const std::vector<In<2>>& weights, const std::vector<In<1>>& biases,
                  In<2> linear, int64_t n_dropped, int64_t n_threads, In<2> hidden, In<2> d_logits,
                  const std::vector<Out<2>>& d_weights, const std::vector<Out<1>>& d_biases, Out<2> d_linear,
                  Out<1> d_gate, Out<2> d_inputs) {
    const Mlp x = mlp_of(inputs, gate, weights, biases, linear, n_dropped, n_threads);
    expect_shape(hidden, {x.n_rows, hidden_width(x)}, "hidden entries have the wrong shape");
    expect_shape(d_logits, {x.n_rows, x.n_outputs}, "gradients of the logits have the wrong shape");
    expect(d_weights.size() == weights.size() && d_biases.size() == biases.size(), "every layer needs gradients");
    MlpGradients to{};
    for (int64_t layer = 0; layer <= x.n_hidden; ++layer) {
        const auto& weight = weights[layer];
        expect_shape(d_weights[layer], {int64_t(weight.shape(0)), int64_t(weight.shape(1))},
                     "gradients of the weights have the wrong shape");
        expect_shape(d_biases[layer], {int64_t(weight.shape(0))}, "gradients of a bias have the wrong shape");
        to.weights[layer] = d_weights[layer].data(), to.biases[layer] = d_biases[layer].data();
    }
    expect_shape(d_linear, {x.n_outputs, x.n_inputs}, "gradients of the linear way have the wrong shape");
    expect_shape(d_gate, {x.n_inputs}, "gradients of the gates have the wrong shape");
    to.n_inputs = int64_t(d_inputs.shape(1));
    expect(int64_t(d_inputs.shape(0)) == x.n_rows && to.n_inputs <= x.n_inputs && to.n_inputs % kVector == 0,
           "gradients of the inputs have the wrong shape");
    to.linear = d_linear.data(), to.gate = d_gate.data(), to.inputs = d_inputs.data();
    const nb::gil_scoped_release released;
    choose_kernels().mlp_backward(x, hidden.data(), d_logits.data(), to);
}

void number_codes(In<2> measures, In<2> low, In<2> width, In<2> rank, In<1> first_rank, bool with_shares,
                  float share_size, float soft_limit, int64_t n_threads, Out<2> out) {
    const int64_t n_rows = int64_t(measures.shape(0)), m = int64_t(measures.shape(1)), g = int64_t(low.shape(1));
    expect_shape(low, {m, g}, "every field needs its intervals");
    expect_shape(width, {m, g}, "every interval needs a width");
    expect_shape(rank, {m, g}, "every interval needs a rank");
    expect_shape(first_rank, {m}, "every field needs its first rank");
    expect_shape(out, {n_rows, m * ((with_shares ? g : 0) + 3)}, "the codes have the wrong shape");
    const Intervals x{m, g, with_shares, share_size, soft_limit, low.data(), width.data(), rank.data(), first_rank.data()};
    const nb::gil_scoped_release released;
    choose_kernels().number_codes(x, threads_for(n_threads, n_rows * m < kWorthThreads ? 1 : n_threads), measures.data(),
                                  n_rows, out.data());
}

// Without a framework these reach Python as DLPack capsules.
using Numbered = nb::ndarray<const int64_t, nb::ndim<1>, nb::device::cpu>;
using Weighted = nb::ndarray<const float, nb::ndim<1>, nb::device::cpu>;

template <class T>
using Row = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Grid = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using OutGrid = nb::ndarray<T, nb::ndim<2>, nb::device::cpu>;

template <class Out, class T>
Target<Out> target_of(const OutGrid<T>& array) {
    return {reinterpret_cast<Out*>(array.data()), array.stride(0), array.stride(1)};
}

Task task_of(const std::string& name) {
    expect(name == "binary" || name == "multiclass" || name == "regression", "no such task");
    return name == "binary" ? Task::binary : name == "multiclass" ? Task::multiclass : Task::regression;
}

template <class T>
const T* at(const std::optional<Row<T>>& array) {
    return array ? array->data() : nullptr;
}

// A numpy array that owns the values.
template <class T, class... Sizes>
auto owned(std::vector<T>&& values, Sizes... sizes) {
    auto* kept = new std::vector<T>(std::move(values));
    const nb::capsule owner(kept, [](void* given) noexcept { delete static_cast<std::vector<T>*>(given); });
    return nb::ndarray<nb::numpy, T, nb::ndim<sizeof...(Sizes)>>(kept->data(), {size_t(sizes)...}, owner);
}

// Counted cells with the arrays that must live as long as they do.
struct CountedCells {
    std::vector<Row<int32_t>> columns;
    std::optional<Row<int64_t>> rows;
    Row<uint16_t> folds;
    std::optional<Row<double>> weights;
    Row<double> amounts;
    std::optional<Row<int32_t>> classes;
    std::unique_ptr<Count> count;

    CountedCells(std::vector<Row<int32_t>> given_columns, const std::vector<int64_t>& n_ids,
                 std::optional<Row<int64_t>> given_rows, Row<uint16_t> given_folds, int64_t n_folds,
                 std::optional<Row<double>> given_weights, Row<double> given_amounts,
                 std::optional<Row<int32_t>> given_classes, int64_t n_outputs, bool in_order, double min_rows)
        : columns(std::move(given_columns)), rows(std::move(given_rows)), folds(std::move(given_folds)),
          weights(std::move(given_weights)), amounts(std::move(given_amounts)), classes(std::move(given_classes)) {
        expect(!columns.empty() && columns.size() == n_ids.size(), "every field needs its number of ids");
        Entries entries{};
        entries.n_ids = n_ids;
        entries.n_entries = int64_t(columns[0].size());
        entries.n_rows = int64_t(folds.size());
        for (const Row<int32_t>& column : columns) {
            expect(int64_t(column.size()) == entries.n_entries, "columns differ in size");
            entries.columns.push_back(column.data());
        }
        expect(rows ? int64_t(rows->size()) == entries.n_entries : entries.n_rows == entries.n_entries,
               "every entry needs a row");
        expect(!weights || weights->size() == folds.size(), "every row needs a weight");
        expect(amounts.size() == folds.size(), "every row needs an amount");
        expect(!classes || classes->size() == folds.size(), "every row needs a class");
        expect(n_folds >= 0 && (classes ? n_outputs > 0 : n_outputs == 1), "sizes of a count must be positive");
        entries.rows = at(rows);
        entries.folds = folds.data();
        entries.n_folds = n_folds;
        entries.weights = at(weights);
        entries.amounts = amounts.data();
        entries.classes = at(classes);
        entries.n_outputs = n_outputs;
        entries.in_order = in_order;
        entries.min_rows = min_rows;
        const nb::gil_scoped_release released;
        count = std::make_unique<Count>(std::move(entries));
    }

    // Keys, rows and sums; they can be taken once.
    auto take() {
        const size_t n_cells = count->keys.size(), n_outputs = size_t(count->n_outputs());
        return nb::make_tuple(owned(std::move(count->keys), n_cells), owned(std::move(count->n), n_cells),
                              owned(std::move(count->s), n_cells, n_outputs));
    }

    std::vector<double> losses(const std::string& task, const std::vector<double>& priors, Row<double> base,
                               std::optional<Row<float>> targets, int64_t most) const {
        expect(int64_t(base.size()) == count->n_outputs(), "every output needs a base rate");
        expect(most > 0, "at least one row is needed");
        expect(classes || (targets && int64_t(targets->size()) == count->n_rows()), "every row needs a target");
        const Task kind = task_of(task);
        const nb::gil_scoped_release released;
        return count->losses(kind, priors, base.data(), at(targets), most);
    }

    template <class T, class Out>
    void statements(const std::string& task, double prior, Row<double> base, OutGrid<T> out) const {
        expect(int64_t(base.size()) == count->n_outputs(), "every output needs a base rate");
        expect_shape(out, {count->n_entries(), count->n_outputs() + 1}, "the statements have the wrong shape");
        const Saying saying(task_of(task), prior, base.data(), count->n_outputs());
        const nb::gil_scoped_release released;
        count->statements(saying, target_of<Out, T>(out));
    }
};

template <class T, class Out>
void say(const std::string& task, Row<double> base, Grid<int32_t> fields, Grid<int64_t> n_ids, Row<double> priors,
         Row<int64_t> starts, Row<int64_t> keys, Row<double> n, Grid<double> s, Grid<int32_t> ids, OutGrid<T> out) {
    const int64_t n_outputs = int64_t(base.size()), n_rows = int64_t(ids.shape(0)), n_columns = int64_t(ids.shape(1));
    const int64_t n_combinations = int64_t(priors.size()), n_cells = int64_t(keys.size());
    expect_shape(fields, {n_combinations, kMostFields}, "every combination needs its fields");
    expect_shape(n_ids, {n_combinations, kMostFields}, "every field needs its number of ids");
    expect(int64_t(starts.size()) == n_combinations + 1, "every combination needs its first cell");
    expect(int64_t(n.size()) == n_cells, "every cell needs its rows");
    expect_shape(s, {n_cells, n_outputs}, "every cell needs a sum for each output");
    expect_shape(out, {n_rows, n_combinations * (n_outputs + 1)}, "the statements have the wrong shape");
    for (int64_t k = 0; k < n_combinations; ++k) {
        const int64_t start = starts.data()[k], stop = starts.data()[k + 1];
        expect(0 <= start && start <= stop && stop <= n_cells, "no such cells");
        expect(fields.data()[k * kMostFields] >= 0, "a combination needs a field");
        for (int64_t f = 0; f < kMostFields; ++f)
            expect(fields.data()[k * kMostFields + f] < n_columns, "a field has no ids");
    }
    const CellTable table{n_combinations, n_outputs,   fields.data(), n_ids.data(), priors.data(),
                          starts.data(),  keys.data(), n.data(),      s.data()};
    const Task kind = task_of(task);
    const nb::gil_scoped_release released;
    say_cells(table, kind, base.data(), ids.data(), n_rows, n_columns, target_of<Out, T>(out));
}

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // gradients that live until the interpreter ends are no leaks
    m.doc() = "Compiled forms of counting and of the training step; `fielddep.native` decides when they are used.";
    m.def("instruction_set", [] { return choose_kernels().name; });

    nb::class_<Refinement>(m, "Refinement")
        .def(
            "__init__",
            [](Refinement* self, int64_t n_fields, int64_t d_embed, int64_t n_steps, float w_rate, float mu_rate,
               float total, float mu_start, float value_scale, bool gram_form, bool mu_from_old, bool with_diagonal,
               bool unit_norm, float mean_norm) {
                expect(n_fields > 0 && d_embed > 0 && n_steps >= 0, "sizes of a refinement must be positive");
                new (self) Refinement{n_fields,    d_embed,   n_steps,     w_rate,        mu_rate,   total,    mu_start,
                                      value_scale, gram_form, mu_from_old, with_diagonal, unit_norm, mean_norm};
            },
            nb::kw_only(), "n_fields"_a, "d_embed"_a, "n_steps"_a, "w_rate"_a, "mu_rate"_a, "total"_a, "mu_start"_a,
            "value_scale"_a, "gram_form"_a, "mu_from_old"_a, "with_diagonal"_a, "unit_norm"_a = false,
            "mean_norm"_a = 0.0f);

    nb::class_<Lookup>(m, "Lookup")
        .def("__init__",
             [](Lookup* self, Table ids, int64_t n_ids, int64_t n_threads) {
                 expect(n_threads > 0, "at least one thread is needed");
                 const nb::gil_scoped_release released;
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
                      std::optional<Refinement>, bool, bool, int64_t>(),
             "lookup"_a, "d_embed"_a, "numbers"_a.none(), "fields"_a, "refinement"_a.none(), "with_embeddings"_a,
             "keep"_a, "n_threads"_a)
        .def_prop_ro("width", [](const Batch& self) { return self.input->width(); })
        .def("forward", &Batch::forward, "table"_a, "phi"_a, "w0"_a.none(), "inputs"_a.noconvert())
        .def("backward", &Batch::backward, "w0"_a.none(), "d_inputs"_a, "d_values"_a.noconvert(),
             "d_phi"_a.noconvert(), "d_w0"_a.noconvert());

    m.def("refine", &refine, "settings"_a, "n_threads"_a, "e"_a, "w0"_a, "w"_a.noconvert(), "mu"_a.noconvert(),
          "q"_a.noconvert());
    m.def("back_refine", &back_refine, "settings"_a, "n_threads"_a, "e"_a, "w0"_a, "d_w"_a.none(), "d_mu"_a.none(),
          "d_q"_a.none(), "d_e"_a.noconvert(), "d_w0"_a.noconvert());
    m.def("sum_columns", &sum_columns, "lookup"_a, "numbers"_a.none(), "fields"_a, "n_threads"_a, "values"_a,
          "out"_a.noconvert());
    m.def("back_sum_columns", &back_sum_columns, "lookup"_a, "numbers"_a.none(), "fields"_a, "n_threads"_a, "d_out"_a,
          "d_values"_a.noconvert());

    nb::class_<Rule>(m, "Rule").def(
        "__init__",
        [](Rule* self, float lr, float shrink, float ridge, float epsilon, float beta_mean, float beta_square) {
            new (self) Rule{lr, shrink, ridge, epsilon, beta_mean, beta_square};
        },
        nb::kw_only(), "lr"_a, "shrink"_a, "ridge"_a, "epsilon"_a, "beta_mean"_a, "beta_square"_a);
    m.def("adagrad", &adagrad, "rule"_a, "ids"_a.none(), "counts"_a.none(), "n_threads"_a, "gradient"_a,
          "weight"_a.noconvert(), "sum"_a.noconvert());
    m.def("adam", &adam, "rule"_a, "ids"_a.none(), "counts"_a.none(), "n_threads"_a, "gradient"_a,
          "weight"_a.noconvert(), "mean"_a.noconvert(), "square"_a.noconvert(), "steps"_a.noconvert());

    m.def("adam_dense", &adam_dense, "rule"_a, "n_threads"_a, "gradients"_a, "weights"_a.noconvert(),
          "means"_a.noconvert(), "squares"_a.noconvert(), "steps"_a.noconvert());
    m.def("mlp_forward", &mlp_forward, "inputs"_a, "gate"_a, "weights"_a, "biases"_a, "linear"_a, "n_dropped"_a,
          "seed"_a, "n_threads"_a, "hidden"_a.noconvert(), "logits"_a.noconvert());
    m.def("mlp_backward", &mlp_backward, "inputs"_a, "gate"_a, "weights"_a, "biases"_a, "linear"_a, "n_dropped"_a,
          "n_threads"_a, "hidden"_a, "d_logits"_a, "d_weights"_a.noconvert(), "d_biases"_a.noconvert(),
          "d_linear"_a.noconvert(), "d_gate"_a.noconvert(), "d_inputs"_a.noconvert());
    m.def("number_codes", &number_codes, "measures"_a, "low"_a, "width"_a, "rank"_a, "first_rank"_a, "with_shares"_a,
          "share_size"_a, "soft_limit"_a, "n_threads"_a, "out"_a.noconvert());

    // Arrays of numpy's float16 come as views of uint16.
    nb::class_<CountedCells>(m, "Count")
        .def(nb::init<std::vector<Row<int32_t>>, const std::vector<int64_t>&, std::optional<Row<int64_t>>,
                      Row<uint16_t>, int64_t, std::optional<Row<double>>, Row<double>, std::optional<Row<int32_t>>,
                      int64_t, bool, double>(),
             "columns"_a, "n_ids"_a, "rows"_a.none(), "folds"_a, "n_folds"_a, "weights"_a.none(), "amounts"_a,
             "classes"_a.none(), "n_outputs"_a, "in_order"_a, "min_rows"_a)
        .def("take", &CountedCells::take)
        .def("losses", &CountedCells::losses, "task"_a, "priors"_a, "base"_a, "targets"_a.none(), "most"_a)
        .def("statements", &CountedCells::statements<double, double>, "task"_a, "prior"_a, "base"_a,
             "out"_a.noconvert())
        .def("statements", &CountedCells::statements<float, float>, "task"_a, "prior"_a, "base"_a, "out"_a.noconvert())
        .def("statements", &CountedCells::statements<uint16_t, Half>, "task"_a, "prior"_a, "base"_a,
             "out"_a.noconvert());
    m.def("say", &say<double, double>, "task"_a, "base"_a, "fields"_a, "n_ids"_a, "priors"_a, "starts"_a, "keys"_a,
          "n"_a, "s"_a, "ids"_a, "out"_a.noconvert());
    m.def("say", &say<uint16_t, Half>, "task"_a, "base"_a, "fields"_a, "n_ids"_a, "priors"_a, "starts"_a, "keys"_a,
          "n"_a, "s"_a, "ids"_a, "out"_a.noconvert());
}
