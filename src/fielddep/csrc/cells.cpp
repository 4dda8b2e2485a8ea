#include "cells.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace fielddep {

namespace {

constexpr size_t kPage = size_t(1) << 21;
constexpr size_t kLarge = 4 * kPage;
constexpr size_t kMostWaiting = 8;

size_t whole_pages(size_t n_bytes) { return (n_bytes + kPage - 1) / kPage * kPage; }

// Blocks of one thread, which end with it.
struct Waiting {
    struct Block {
        void* memory;
        size_t n_bytes;
    };
    Block blocks[kMostWaiting];
    size_t n_blocks = 0;

    ~Waiting() {
        while (n_blocks) std::free(blocks[--n_blocks].memory);
    }
};
thread_local Waiting waiting;

}  // namespace

void* take_memory(size_t n_bytes) {
    void* memory;
    if (n_bytes < kLarge) {
        memory = std::malloc(n_bytes + 1);  // some, even for nothing
    } else {
        const size_t whole = whole_pages(n_bytes);
        for (size_t i = 0; i < waiting.n_blocks; ++i) {
            if (waiting.blocks[i].n_bytes != whole) continue;
            memory = waiting.blocks[i].memory;
            waiting.blocks[i] = waiting.blocks[--waiting.n_blocks];
            return memory;
        }
        memory = std::aligned_alloc(kPage, whole);
#ifdef __linux__
        if (memory != nullptr) madvise(memory, whole, MADV_HUGEPAGE);
#endif
    }
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

void leave_memory(void* memory, size_t n_bytes) noexcept {
    if (n_bytes < kLarge || waiting.n_blocks == kMostWaiting)
        std::free(memory);
    else
        waiting.blocks[waiting.n_blocks++] = {memory, whole_pages(n_bytes)};
}

namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kMostDirect = 1 << 16;    // joint values that need no hash
constexpr int64_t kBucketEntries = 1 << 13;
constexpr int kMostBits = 10;
constexpr int64_t kLogs = 4096;
constexpr double kMostSaid = 30.0;
constexpr int64_t kFactors = 16;  // probabilities that are multiplied before a logarithm; none is below 1e-19
constexpr int64_t kLanes = 8;     // products at the same time

void expect(bool holds, const char* what) {
    if (!holds) throw std::out_of_range(what);
}

uint64_t mixed(int64_t key) { return uint64_t(key) * 0x9E3779B97F4A7C15ull; }

// Joint values of some entries.
void joint_keys(const Entries& entries, int64_t first, int64_t size, int64_t* keys) {
    bool fitting = true;
    std::fill(keys, keys + size, 0);
    for (size_t f = 0; f < entries.columns.size(); ++f) {
        const int32_t* ids = entries.columns[f] + first;
        const int64_t n = entries.n_ids[f];
        for (int64_t i = 0; i < size; ++i) {
            fitting &= (ids[i] >= 0) & (ids[i] < n);
            keys[i] = keys[i] * n + ids[i];
        }
    }
    expect(fitting, "ids must be smaller than the number of ids of their field");
}

// Keys to numbers in the order of appearance: open addressing in a table that grows.
class Numbering {
   public:
    std::vector<int64_t> keys;

    // Keys of one bucket share the first bits of their hash.
    explicit Numbering(int shared_bits) : shared_(shared_bits) { resize(10); }

    // The table keeps its size: buckets are alike.
    void clear() {
        keys.clear();
        resize(bits_);
    }

    int32_t number(int64_t key) {
        uint64_t at = place(key);
        while (slots_[at].number >= 0) {
            if (slots_[at].key == key) return slots_[at].number;
            at = (at + 1) & (slots_.size() - 1);
        }
        const int32_t number = int32_t(keys.size());
        slots_[at] = {key, number};
        keys.push_back(key);
        if (2 * keys.size() > slots_.size()) resize(bits_ + 1);
        return number;
    }

   private:
    struct Slot {
        int64_t key;
        int32_t number;
    };
    std::vector<Slot> slots_;
    int bits_ = 0, shared_ = 0;

    uint64_t place(int64_t key) const { return mixed(key) << shared_ >> (64 - bits_); }

    void resize(int bits) {
        bits_ = bits;
        slots_.assign(size_t(1) << bits, {0, -1});
        for (size_t i = 0; i < keys.size(); ++i) {
            uint64_t at = place(keys[i]);
            while (slots_[at].number >= 0) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = {keys[i], int32_t(i)};
        }
    }
};

// Groups of the cells of one bucket; sums of all buckets are in the same arrays.
class Groups {
   public:
    // There is room for as many groups as entries.
    Groups(const Entries& entries, double* n, double* s)
        : n_folds_(entries.n_folds), n_outputs_(entries.n_outputs), in_order_(entries.in_order),
          min_rows_(entries.min_rows), n_(n), s_(s) {}

    int64_t size() const { return n_groups_; }

    void start(int64_t n_entries, int64_t n_cells) {
        first_ = n_groups_;
        if (int64_t(places_.size()) < n_entries) places_.resize(size_t(n_entries));
        n_cells_ = 0;
        while (n_cells_ < n_cells) make_room(n_cells_);
    }

    // Cells are numbered in the order of appearance, so a new one is the next.
    void make_room(int64_t cell) {
        if (cell < n_cells_) return;
        const size_t end = size_t(++n_cells_ * width());
        if (slots_.size() < end) slots_.resize(2 * end);
        std::fill(slots_.begin() + int64_t(end) - width(), slots_.begin() + int64_t(end), -1);
    }

    // Rows that are not for training count nothing.
    int32_t add(int64_t cell, int64_t fold, double weight, int64_t output, double amount) {
        int32_t& group = slots_[size_t(cell * width() + fold)];
        if (group < 0) {
            group = int32_t(n_groups_);
            places_[size_t(n_groups_ - first_)] = {int32_t(cell), int32_t(fold)};
            n_[n_groups_] = 0.0;
            for (int64_t c = 0; c < n_outputs_; ++c) s_[n_groups_ * n_outputs_ + c] = 0.0;
            ++n_groups_;
        }
        const bool counts = fold < n_folds_;
        n_[group] += counts ? weight : 0.0;
        s_[group * n_outputs_ + output] += counts ? amount : 0.0;
        return group;
    }

    // Append the cells with enough training rows; from own sums of the groups to what they are told.
    template <class KeyOf>
    void close(KeyOf key_of, std::vector<int64_t>& keys, std::vector<double>& cell_n, std::vector<double>& cell_s) {
        total();
        if (in_order_) {
            for (int64_t cell = 0; cell < n_cells_; ++cell) tell_earlier(cell);
        } else {
            for (int64_t g = first_; g < n_groups_; ++g) tell_others(g, places_[size_t(g - first_)].cell);
        }
        for (int64_t g = first_; g < n_groups_; ++g)
            if (n_[g] < min_rows_) tell_nothing(g);
        for (size_t cell = 0; cell < size_t(n_cells_); ++cell) {
            if (!known_[cell] || total_n_[cell] < min_rows_) continue;
            keys.push_back(key_of(cell));
            cell_n.push_back(total_n_[cell]);
            for (size_t c = 0; c < size_t(n_outputs_); ++c) cell_s.push_back(total_s_[cell * size_t(n_outputs_) + c]);
        }
    }

   private:
    struct Place {
        int32_t cell, fold;
    };
    int64_t n_folds_, n_outputs_, n_cells_ = 0, n_groups_ = 0;
    bool in_order_;
    double min_rows_;
    double *n_, *s_;
    int64_t first_ = 0;           // first group of this bucket
    std::vector<int32_t> slots_;  // group of each cell and fold; -1: none
    std::vector<Place> places_;   // of each group
    std::vector<double> total_n_, total_s_;
    std::vector<char> known_;  // whether a cell has training rows

    int64_t width() const { return n_folds_ + 1; }

    void total() {
        total_n_.assign(size_t(n_cells_), 0.0);
        total_s_.assign(size_t(n_cells_ * n_outputs_), 0.0);
        known_.assign(size_t(n_cells_), 0);
        for (int64_t g = first_; g < n_groups_; ++g) {
            const Place place = places_[size_t(g - first_)];
            known_[size_t(place.cell)] |= char(place.fold < n_folds_);
            total_n_[size_t(place.cell)] += n_[g];
            for (int64_t c = 0; c < n_outputs_; ++c)
                total_s_[size_t(place.cell * n_outputs_ + c)] += s_[g * n_outputs_ + c];
        }
    }

    void tell_others(int64_t group, int64_t cell) {
        n_[group] = total_n_[size_t(cell)] - n_[group];
        for (int64_t c = 0; c < n_outputs_; ++c)
            s_[group * n_outputs_ + c] = total_s_[size_t(cell * n_outputs_ + c)] - s_[group * n_outputs_ + c];
    }

    void tell_nothing(int64_t group) {
        n_[group] = 0.0;
        std::fill_n(s_ + group * n_outputs_, n_outputs_, 0.0);
    }

    // A row that is not for training comes after all folds.
    void tell_earlier(int64_t cell) {
        const int32_t* groups = slots_.data() + cell * width();
        for (int64_t c = -1; c < n_outputs_; ++c) {
            double before = 0.0;
            for (int64_t fold = 0; fold < width(); ++fold) {
                if (groups[fold] < 0) continue;
                double& own = c < 0 ? n_[groups[fold]] : s_[groups[fold] * n_outputs_ + c];
                const double told = before;
                before += own;
                own = told;
            }
        }
    }
};

// An entry on its way to its bucket.
struct Record {
    int64_t key;
    double amount;
    int32_t output;
    uint16_t fold;
};

// Positions of ascending keys; a radix sort, of as many bits as the keys have.
std::vector<int32_t> order_of(const std::vector<int64_t>& keys) {
    struct Numbered {
        int64_t key;
        int32_t number;
    };
    const size_t size = keys.size();
    std::vector<Numbered> from(size), to(size);
    int64_t highest = 0;
    for (size_t i = 0; i < size; ++i) {
        from[i] = {keys[i], int32_t(i)};
        highest = std::max(highest, keys[i]);
    }
    if (size < 2048) {
        std::sort(from.begin(), from.end(), [](const Numbered& a, const Numbered& b) { return a.key < b.key; });
    } else {
        constexpr int kBits = 11;
        for (int shift = 0; shift < 63 && highest >> shift; shift += kBits) {
            size_t starts[(1 << kBits) + 1] = {};
            const auto digit = [shift](const Numbered& x) { return size_t(x.key >> shift) & ((1 << kBits) - 1); };
            for (const Numbered& x : from) ++starts[digit(x) + 1];
            for (int i = 0; i < 1 << kBits; ++i) starts[i + 1] += starts[i];
            for (const Numbered& x : from) to[starts[digit(x)]++] = x;
            from.swap(to);
        }
    }
    std::vector<int32_t> order(size);
    for (size_t i = 0; i < size; ++i) order[i] = from[i].number;
    return order;
}

template <class T>
void reorder(std::vector<T>& values, const std::vector<int32_t>& order, int64_t width) {
    std::vector<T> sorted(values.size());
    for (size_t i = 0; i < order.size(); ++i)
        for (int64_t c = 0; c < width; ++c) sorted[i * width + c] = values[size_t(order[i]) * width + c];
    values.swap(sorted);
}

// Ties to even, as numpy rounds. Statements are never so large that they overflow.
Half to_half(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const uint16_t sign = uint16_t(bits >> 48 & 0x8000);
    bits &= ~(uint64_t(1) << 63);
    if (bits > uint64_t(0x7FF) << 52) return {uint16_t(sign | 0x7E00)};  // not a number
    if (bits < uint64_t(1023 - 14) << 52) {  // few digits: adding and subtracting 2^52 rounds to whole numbers
        const double whole = std::fabs(x) * 0x1p24 + 0x1p52;
        return {uint16_t(sign | uint16_t(whole - 0x1p52))};
    }
    bits += (uint64_t(1) << 41) - 1 + (bits >> 42 & 1);
    return {uint16_t(sign | uint16_t((bits >> 42) - (uint64_t(1023 - 15) << 10)))};
}

inline void put(double x, double* to) { *to = x; }
inline void put(double x, float* to) { *to = float(x); }
inline void put(double x, Half* to) { *to = to_half(x); }

// The logarithm of one more than the rows, which is mostly a small whole number.
double log_rows(double n) {
    static const std::vector<double> known = [] {
        std::vector<double> logs(kLogs);
        for (int64_t i = 0; i < kLogs; ++i) logs[size_t(i)] = std::log1p(double(i));
        return logs;
    }();
    const int64_t whole = n >= 0 && n < double(kLogs) ? int64_t(n) : -1;
    return whole >= 0 && double(whole) == n ? known[size_t(whole)] : std::log1p(n);
}

template <class Out>
void say(const Saying& saying, double n, const double* s, int64_t n_outputs, Out* out) {
    for (int64_t c = 0; c < n_outputs; ++c) put(saying.says(n, s[c], c), out + c);
    put(log_rows(n), out + n_outputs);
}

template <class Out>
void copy(const Out* from, int64_t width, Out* to, int64_t step) {
    to[0] = from[0];
    to[step] = from[1];
    for (int64_t c = 2; c < width; ++c) to[c * step] = from[c];
}

}  // namespace

Saying::Saying(Task given_task, double given_prior, const double* given_base, int64_t n_outputs)
    : task(given_task), prior(given_prior), base(given_base, given_base + n_outputs) {
    for (const double rate : base) {
        shares.push_back(prior * rate);
        base_odds.push_back(task == Task::binary ? std::log(rate / (1.0 - rate)) : 0.0);
    }
}

double Saying::says(double n, double s, int64_t output) const {
    const double mean = (s + shares[size_t(output)]) / (n + prior);
    double said = mean;
    if (task == Task::multiclass) said = std::log(mean / base[size_t(output)]);
    if (task == Task::binary) said = std::log(mean / (1.0 - mean)) - base_odds[size_t(output)];
    return std::min(std::max(said, -kMostSaid), kMostSaid);
}

Count::Count(Entries given) : entries_(std::move(given)) {
    const int64_t size = entries_.n_entries;
    expect(size < int64_t(1) << 31, "at most two billion values can be counted");
    for (int64_t e = 0; entries_.rows && e < size; ++e)
        expect(entries_.rows[e] >= 0 && entries_.rows[e] < entries_.n_rows, "an entry has no row");
    for (int64_t r = 0; r < entries_.n_rows; ++r) {
        expect(entries_.folds[r] <= entries_.n_folds, "a fold is missing");
        if (entries_.classes)
            expect(entries_.classes[r] >= 0 && entries_.classes[r] < entries_.n_outputs, "a class is missing");
    }
    group_of_ = memory_for<int32_t>(size);
    told_n_ = memory_for<double>(size);  // the system gives memory when it is touched
    told_s_ = memory_for<double>(size * entries_.n_outputs);
    int bits = 0;
    while (bits < kMostBits && size >> bits > kBucketEntries) ++bits;
    double n_keys = 1;
    for (const int64_t n_ids : entries_.n_ids) n_keys *= double(n_ids);
    if (n_keys <= double(std::min(kMostDirect, 4 * size))) {
        count_directly();
    } else {
        count_buckets(bits);
        sort_cells();
    }
}

// A number for every joint value that there could be.
void Count::count_directly() {
    int64_t n_keys = 1;
    for (const int64_t n_ids : entries_.n_ids) n_keys *= n_ids;
    Groups groups(entries_, told_n_.get(), told_s_.get());
    groups.start(std::min(entries_.n_entries, n_keys * (entries_.n_folds + 1)), n_keys);
    int64_t block[kBlock];
    for (int64_t first = 0; first < entries_.n_entries; first += kBlock) {
        const int64_t size = std::min(kBlock, entries_.n_entries - first);
        joint_keys(entries_, first, size, block);
        for (int64_t i = 0; i < size; ++i) {
            const int64_t row = entries_.row(first + i);
            n_train_ += entries_.folds[row] < entries_.n_folds;
            group_of_[size_t(first + i)] = groups.add(block[i], entries_.folds[row], entries_.weight(row),
                                                      entries_.classes ? entries_.classes[row] : 0,
                                                      entries_.amounts[row]);
        }
    }
    groups.close([](size_t cell) { return int64_t(cell); }, keys, n, s);
    starts_ = {0, entries_.n_entries};
    group_starts_ = {0, groups.size()};
}

void Count::count_buckets(int bits) {
    const int64_t size = entries_.n_entries, n_buckets = int64_t(1) << bits;
    const auto bucket = [bits](int64_t key) { return bits ? mixed(key) >> (64 - bits) : 0; };
    int64_t block[kBlock];
    starts_.assign(size_t(n_buckets + 1), 0);
    if (bits) bucket_of_ = memory_for<uint16_t>(size);
    for (int64_t first = 0; first < size; first += kBlock) {
        const int64_t n_block = std::min(kBlock, size - first);
        joint_keys(entries_, first, n_block, block);
        for (int64_t i = 0; i < n_block; ++i) {
            const uint64_t at = bucket(block[i]);
            ++starts_[at + 1];
            if (bits) bucket_of_[size_t(first + i)] = uint16_t(at);
        }
    }
    for (int64_t b = 0; b < n_buckets; ++b) starts_[size_t(b + 1)] += starts_[size_t(b)];

    const Memory<Record> records = memory_for<Record>(size);
    const Memory<double> weights = memory_for<double>(entries_.weights ? size : 0);
    std::vector<int64_t> next = starts_;
    for (int64_t first = 0; first < size; first += kBlock) {
        const int64_t n_block = std::min(kBlock, size - first);
        joint_keys(entries_, first, n_block, block);
        for (int64_t i = 0; i < n_block; ++i) {
            const int64_t row = entries_.row(first + i), at = next[bucket(block[i])]++;
            const uint16_t fold = entries_.folds[row];
            n_train_ += fold < entries_.n_folds;
            records[size_t(at)] = {block[i], entries_.amounts[row], entries_.classes ? entries_.classes[row] : 0, fold};
            if (entries_.weights) weights[size_t(at)] = entries_.weights[row];
        }
    }

    Groups groups(entries_, told_n_.get(), told_s_.get());
    Numbering cells(bits);
    group_starts_.push_back(0);
    for (int64_t b = 0; b < n_buckets; ++b) {
        cells.clear();
        groups.start(starts_[size_t(b + 1)] - starts_[size_t(b)], 0);
        for (int64_t at = starts_[size_t(b)]; at < starts_[size_t(b + 1)]; ++at) {
            const Record& record = records[size_t(at)];
            const int32_t cell = cells.number(record.key);
            groups.make_room(cell);
            group_of_[size_t(at)] =
                groups.add(cell, record.fold, entries_.weights ? weights[size_t(at)] : 1.0, record.output, record.amount);
        }
        groups.close([&](size_t cell) { return cells.keys[cell]; }, keys, n, s);
        group_starts_.push_back(groups.size());
    }
}

void Count::sort_cells() {
    const std::vector<int32_t> order = order_of(keys);
    reorder(keys, order, 1);
    reorder(n, order, 1);
    reorder(s, order, entries_.n_outputs);
}

// Calls take(entry, place of the entry in its bucket's order).
template <class Take>
void Count::in_order_of_entries(Take take) const {
    if (!bucket_of_) {
        for (int64_t e = 0; e < entries_.n_entries; ++e) take(e, e);
        return;
    }
    std::vector<int64_t> next = starts_;
    for (int64_t e = 0; e < entries_.n_entries; ++e) take(e, next[bucket_of_[size_t(e)]]++);
}

std::vector<double> Count::losses(Task task, const std::vector<double>& priors, const double* base,
                                  const float* targets, int64_t most) const {
    const int64_t step = std::max<int64_t>(1, n_train_ / most);
    const size_t room = size_t(n_train_ / step + 1);
    const Memory<double> memory = memory_for<double>(5 * int64_t(room));
    double *n = memory.get(), *s = n + room, *rate = s + room, *weight = rate + room, *target = weight + room;
    int64_t size = 0, until_next = 0;
    in_order_of_entries([&](int64_t entry, int64_t at) {
        const int64_t row = entries_.row(entry);
        if (entries_.folds[row] == entries_.n_folds || until_next-- > 0) return;
        until_next = step - 1;
        const int64_t group = group_of_[size_t(at)], c = entries_.classes ? entries_.classes[row] : 0;
        n[size] = told_n_[size_t(group)];
        s[size] = told_s_[size_t(group * entries_.n_outputs + c)];
        rate[size] = base[c];
        weight[size] = entries_.weight(row);
        target[size] = entries_.classes ? 1.0 : task == Task::binary ? double(targets[row] > 0) : double(targets[row]);
        ++size;
    });
    std::vector<double> found;
    for (const double prior : priors) {
        const auto mean = [=](int64_t i) { return (s[i] + prior * rate[i]) / (n[i] + prior); };
        // The mean if the target is 1, else what it lacks to 1; no branch, which would be taken at random.
        const auto probability = [=](int64_t i) { return (1.0 - target[i]) + (2.0 * target[i] - 1.0) * mean(i); };
        double loss = 0.0;
        int64_t first = 0;
        if (task == Task::regression) {
            for (; first < size; ++first)
                loss += weight[first] * ((mean(first) - target[first]) * (mean(first) - target[first]));
        } else if (!entries_.weights) {
            // A logarithm of a product costs less than many logarithms.
            for (; first + kFactors * kLanes <= size; first += kFactors * kLanes) {
                double products[kLanes];
                for (int64_t j = 0; j < kLanes; ++j) products[j] = 1.0;
                for (int64_t i = first; i < first + kFactors * kLanes; i += kLanes)
                    for (int64_t j = 0; j < kLanes; ++j) products[j] *= probability(i + j);
                for (int64_t j = 0; j < kLanes; ++j) loss -= std::log(products[j]);
            }
        }
        for (; first < size; ++first) loss -= weight[first] * std::log(probability(first));
        found.push_back(loss);
    }
    return found;
}

template <class Out>
void Count::statements(const Saying& saying, Target<Out> out) const {
    const int64_t n_outputs = entries_.n_outputs, width = n_outputs + 1;
    const Memory<Out> by_bucket = memory_for<Out>(bucket_of_ ? entries_.n_entries * width : 0);
    const Target<Out> to = bucket_of_ ? Target<Out>{by_bucket.get(), width, 1} : out;
    std::vector<Out> said;
    for (size_t b = 0; b + 1 < starts_.size(); ++b) {
        const int64_t first = group_starts_[b], n_groups = group_starts_[b + 1] - first;
        said.resize(size_t(n_groups * width));
        for (int64_t g = 0; g < n_groups; ++g)
            say(saying, told_n_[size_t(first + g)], told_s_.get() + (first + g) * n_outputs, n_outputs,
                said.data() + g * width);
        for (int64_t at = starts_[b]; at < starts_[b + 1]; ++at)
            copy(said.data() + (group_of_[size_t(at)] - first) * width, width, to.at(at), to.column_step);
    }
    if (bucket_of_)
        in_order_of_entries(
            [&](int64_t entry, int64_t at) { copy(to.at(at), width, out.at(entry), out.column_step); });
}

template void Count::statements(const Saying&, Target<double>) const;
template void Count::statements(const Saying&, Target<float>) const;
template void Count::statements(const Saying&, Target<Half>) const;

namespace {

constexpr int64_t kManyRows = 64;
constexpr int64_t kCellsPerRow = 32;  // with more, an index of the cells costs more than it saves

int n_bits(int64_t x) {
    int bits = 0;
    while (x >> bits) ++bits;
    return bits;
}

// Places of keys among the ascending ones of a combination.
class Places {
   public:
    Places(const int64_t* keys, int64_t n_cells, int64_t n_rows) : keys_(keys), n_cells_(n_cells) {
        if (n_cells == 0 || n_rows < kManyRows || n_cells > kCellsPerRow * n_rows) return;
        const int64_t highest = keys[n_cells - 1];
        shift_ = std::max(0, n_bits(highest) - n_bits(n_cells) + 1);
        starts_.reserve(size_t((highest >> shift_) + 2));
        for (int64_t at = 0; at < n_cells; ++at)
            while (int64_t(starts_.size()) <= keys[at] >> shift_) starts_.push_back(at);
        starts_.push_back(n_cells);
    }

    // n_cells if the key is not there.
    int64_t find(int64_t key) const {
        const int64_t at = key >> shift_;
        int64_t first = 0, size = n_cells_;
        if (!starts_.empty()) {
            if (key < 0 || at + 1 >= int64_t(starts_.size())) return n_cells_;
            first = starts_[size_t(at)];
            size = starts_[size_t(at + 1)] - first;
        }
        while (size > 1) {  // without branches that depend on the key
            const int64_t half = size / 2;
            first = keys_[first + half] <= key ? first + half : first;
            size -= half;
        }
        return size && keys_[first] == key ? first : n_cells_;
    }

   private:
    const int64_t* keys_;
    int64_t n_cells_;
    int shift_ = 0;
    std::vector<int64_t> starts_;  // the first place with a key of at least i << shift, for every i; empty: no index
};

int64_t joint_key(const int32_t* fields, const int64_t* n_ids, const int32_t* ids) {
    int64_t key = ids[fields[0]];
    for (int64_t f = 1; f < kMostFields && fields[f] >= 0; ++f) key = key * n_ids[f] + ids[fields[f]];
    return key;
}

}  // namespace

template <class Out>
void say_cells(const CellTable& table, Task task, const double* base, const int32_t* ids, int64_t n_rows,
               int64_t n_columns, Target<Out> out) {
    const int64_t n_outputs = table.n_outputs, width = n_outputs + 1;
    const std::vector<double> nothing(size_t(n_outputs), 0.0);
    std::vector<Out> said(size_t(width), Out{});
    int64_t found[kBlock];
    for (int64_t k = 0; k < table.n_combinations; ++k) {
        const int64_t first = table.starts[k], n_cells = table.starts[k + 1] - first;
        const int32_t* fields = table.fields + k * kMostFields;
        const int64_t* n_ids = table.n_ids + k * kMostFields;
        const Saying saying(task, table.priors[k], base, n_outputs);
        const Places places(table.keys + first, n_cells, n_rows);
        for (int64_t start = 0; start < n_rows; start += kBlock) {
            const int64_t size = std::min(kBlock, n_rows - start);
            for (int64_t i = 0; i < size; ++i)  // apart from the logarithms, so that several are found at a time
                found[i] = places.find(joint_key(fields, n_ids, ids + (start + i) * n_columns));
            for (int64_t i = 0; i < size; ++i) {
                const bool known = found[i] < n_cells;
                const int64_t cell = first + found[i];
                say(saying, known ? table.n[cell] : 0.0, known ? table.s + cell * n_outputs : nothing.data(),
                    n_outputs, said.data());
                copy(said.data(), width, out.at(start + i) + k * width * out.column_step, out.column_step);
            }
        }
    }
}

template void say_cells(const CellTable&, Task, const double*, const int32_t*, int64_t, int64_t, Target<double>);
template void say_cells(const CellTable&, Task, const double*, const int32_t*, int64_t, int64_t, Target<Half>);

}  // namespace fielddep
