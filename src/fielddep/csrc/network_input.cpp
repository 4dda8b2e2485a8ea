#include "network_input.h"

#include <algorithm>
#include <cstring>

namespace fielddep {
namespace {

constexpr double kByRowFrom = 0.75;  // share of distinct values from which a field works row by row
constexpr double kTableUpTo = 0.5;   // a pair has a table when it has at most this many cells a row
constexpr int64_t kFewRows = 8;      // fewer are not worth packing matrices for
constexpr int64_t kMostShared = int64_t(1) << 25;  // floats of all shares' own sums, however many threads there are

bool is_by_row(const Column& column, int64_t n_rows) {
    return column.scale != nullptr || double(column.n_slots) >= kByRowFrom * double(n_rows);
}

int64_t round_up(int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace

std::vector<Column> columns_of(const Lookup& lookup, const Numbers& numbers) {
    std::vector<Column> columns(lookup.n_columns);
    for (int64_t f = 0; f < lookup.n_columns; ++f)
        columns[f] = {lookup.starts[f], lookup.starts[f + 1] - lookup.starts[f],
                      lookup.slot_of_row.data() + f * lookup.n_rows, nullptr, 0};
    for (size_t n = 0; n < numbers.fields.size(); ++n) {
        columns[numbers.fields[n]].scale = numbers.numbers + n;
        columns[numbers.fields[n]].scale_stride = int64_t(numbers.fields.size());
    }
    return columns;
}

NetworkInput::NetworkInput(std::shared_ptr<const Lookup> lookup, int64_t d_embed, const Numbers& numbers,
                           const Refinement* refinement, bool with_embeddings, bool keep, int64_t n_threads)
    : lookup_(std::move(lookup)), columns_(columns_of(*lookup_, numbers)) {
    const int64_t n_columns = lookup_->n_columns;
    plan_.n_rows = lookup_->n_rows;
    plan_.n_columns = n_columns;
    plan_.d_embed = d_embed;
    plan_.n_pairs = n_columns * (n_columns - 1) / 2;
    plan_.n_threads = std::max<int64_t>(1, std::min(n_threads, (plan_.n_rows + kRowBlock - 1) / kRowBlock));
    plan_.n_slots = int64_t(lookup_->ids.size());
    plan_.n_known = plan_.n_pairs;
    if (refinement != nullptr) {
        refinement_ = *refinement;
        plan_.refinement = &refinement_;
        plan_.n_known += n_dependency_values(refinement_);
    }
    plan_.inputs_width = plan_.n_known + (with_embeddings ? n_columns * d_embed : 0);
    plan_.few_rows = !keep && plan_.n_rows < kFewRows;
    choose_hosts();
    const int64_t share_size = plan_.applied_size + plan_.cells_size + plan_.packed_size;
    plan_.n_shares = std::max<int64_t>(1, std::min(plan_.n_threads, kMostShared / std::max<int64_t>(share_size, 1)));
    plan_.columns = columns_.data();
    plan_.hosts = hosts_.data();
}

void NetworkInput::choose_hosts() {
    const int64_t n_columns = plan_.n_columns, n_rows = plan_.n_rows, kp = plan_.kp();
    hosts_.resize(n_columns);
    guests_.resize(n_columns);
    std::vector<std::vector<Guest>> with_table(n_columns);
    std::vector<int64_t> size(n_columns);
    for (int64_t f = 0; f < n_columns; ++f) size[f] = is_by_row(columns_[f], n_rows) ? n_rows : columns_[f].n_slots;
    int64_t pair = 0, cells = 0;
    for (int64_t i = 0; i < n_columns; ++i)
        for (int64_t j = i + 1; j < n_columns; ++j, ++pair) {
            const bool first_hosts = size[i] <= size[j];
            const int64_t host = first_hosts ? i : j, guest = first_hosts ? j : i;
            const bool table = !is_by_row(columns_[i], n_rows) && !is_by_row(columns_[j], n_rows) &&
                               double(size[i]) * double(size[j]) <= kTableUpTo * double(n_rows);
            (table ? with_table : guests_)[host].push_back({pair, guest, first_hosts, table ? cells : 0});
            if (table) cells += size[i] * size[j];
        }
    int64_t applied = 0, packed = 0;
    for (int64_t f = 0; f < n_columns; ++f) {
        Host& host = hosts_[f];
        host.field = f;
        host.by_row = is_by_row(columns_[f], n_rows);
        host.n_rowwise = int64_t(guests_[f].size());
        guests_[f].insert(guests_[f].end(), with_table[f].begin(), with_table[f].end());
        host.guests = guests_[f].data();
        host.n_guests = int64_t(guests_[f].size());
        host.width = host.n_guests * kp;
        host.applied = applied;
        host.packed = packed;
        if (!host.by_row) applied += host.width * columns_[f].n_slots;
        packed += host.width * plan_.d_embed;
        if (host.by_row) plan_.widest = std::max(plan_.widest, host.width);
    }
    plan_.applied_size = round_up(applied);
    plan_.packed_size = round_up(packed);
    plan_.packed_t_size = packed / plan_.d_embed * kp;
    plan_.cells_size = round_up(cells);
}

void NetworkInput::forward(const float* table, const float* phi, const float* w0, float* inputs) {
    const int64_t k = plan_.d_embed, kp = plan_.kp();
    values_ = std::make_unique<Borrowed>(plan_.n_slots * kp);
    e_ = std::make_unique<Borrowed>(plan_.n_rows * plan_.row_size());
    applied_ = std::make_unique<Borrowed>(plan_.applied_size);
    packed_ = std::make_unique<Borrowed>(plan_.packed_size);
    cells_ = std::make_unique<Borrowed>(plan_.cells_size);
    const std::vector<int64_t>& ids = lookup_->ids;
    float* values = values_->get();
#pragma omp parallel for num_threads(plan_.n_threads) schedule(static)
    for (int64_t slot = 0; slot < plan_.n_slots; ++slot) {
        if (slot + 8 < plan_.n_slots) __builtin_prefetch(table + ids[slot + 8] * k);
        std::memcpy(values + slot * kp, table + ids[slot] * k, k * sizeof(float));
        std::fill(values + slot * kp + k, values + (slot + 1) * kp, 0.0f);
    }
    Forward to{values, e_->get(), applied_->get(), packed_->get(), cells_->get()};
    choose_kernels().input_forward(plan_, phi, w0, to, inputs);
}

void NetworkInput::backward(const float* w0, const float* d_inputs, float* d_values, float* d_phi,
                            float* d_w0) const {
    const int64_t kp = plan_.kp(), n_shares = plan_.n_shares;
    const int64_t ff = plan_.refinement == nullptr ? 0 : refinement_.n_fields * refinement_.n_fields;
    const Forward from{values_->get(), e_->get(), applied_->get(), packed_->get(), cells_->get()};
    const Borrowed padded_values(plan_.n_slots * kp), d_e(plan_.n_rows * plan_.row_size()),
        packed_t(plan_.packed_t_size), d_applied(n_shares * plan_.applied_size), d_cells(n_shares * plan_.cells_size),
        d_packed(n_shares * plan_.packed_size), all_w0(n_shares * ff * kLanes);
    Backward to{padded_values.get(), d_e.get(),      packed_t.get(), d_applied.get(),
                d_cells.get(),       d_packed.get(), all_w0.get()};
    choose_kernels().input_backward(plan_, w0, from, to, d_inputs, d_values, d_phi, d_w0);
}

}  // namespace fielddep
