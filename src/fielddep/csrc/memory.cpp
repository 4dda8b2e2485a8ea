// Memory that is used again: fresh pages of the system cost more than the arithmetic on them.
#include <cstdlib>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "kernels.h"

namespace fielddep {
namespace {

constexpr int64_t kMostKept = int64_t(1) << 25;  // floats that wait for the next batch, at most
constexpr size_t kMostBlocks = 256;

struct Block {
    float* memory;
    int64_t size;
};

std::mutex guard;
std::vector<Block> waiting;
std::unordered_map<float*, int64_t> lent;
int64_t n_waiting = 0;

}  // namespace

// Sizes come in steps of a quarter: batches differ a little, and their blocks must serve each other.
static int64_t rounded(int64_t n_floats) {
    int64_t power = 64;
    while (power < n_floats) power *= 2;
    const int64_t step = power / 8;
    return (n_floats + step - 1) / step * step;
}

float* borrow(int64_t n_floats) {
    const int64_t size = (rounded(n_floats) + 15) / 16 * 16;
    const std::lock_guard<std::mutex> lock(guard);
    size_t best = waiting.size();
    for (size_t i = 0; i < waiting.size(); ++i)
        if (waiting[i].size >= size && waiting[i].size <= 2 * size &&
            (best == waiting.size() || waiting[i].size < waiting[best].size))
            best = i;
    Block block;
    if (best < waiting.size()) {
        block = waiting[best];
        waiting.erase(waiting.begin() + int64_t(best));
        n_waiting -= block.size;
    } else {
        block = {static_cast<float*>(std::aligned_alloc(64, size * sizeof(float))), size};
        if (block.memory == nullptr) throw std::bad_alloc();
    }
    try {
        lent[block.memory] = block.size;
        waiting.reserve(lent.size() + waiting.size());  // so that giving back never fails
    } catch (...) {
        lent.erase(block.memory);
        std::free(block.memory);
        throw;
    }
    return block.memory;
}

void give_back(float* memory) {
    const std::lock_guard<std::mutex> lock(guard);
    const auto found = lent.find(memory);
    const Block block{memory, found->second};
    lent.erase(found);
    if (block.size > kMostKept) {
        std::free(memory);
        return;
    }
    waiting.push_back(block);
    n_waiting += block.size;
    size_t n_old = 0;  // those that have waited longest go first
    while (n_waiting > kMostKept || waiting.size() - n_old > kMostBlocks) {
        n_waiting -= waiting[n_old].size;
        std::free(waiting[n_old++].memory);
    }
    waiting.erase(waiting.begin(), waiting.begin() + int64_t(n_old));
}

}  // namespace fielddep
