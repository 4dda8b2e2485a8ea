// One batch on its way from a table to the network's input and back.
#pragma once

#include <memory>
#include <vector>

#include "kernels.h"
#include "lookup.h"

namespace fielddep {

// Numbers of the numerical fields: column `fields[n]` of ids is scaled by numbers[row * fields.size() + n].
struct Numbers {
    const float* numbers = nullptr;
    std::vector<int64_t> fields;
};

class NetworkInput {
  public:
    NetworkInput(std::shared_ptr<const Lookup> lookup, int64_t d_embed, const Numbers& numbers,
                 const Refinement* refinement, bool with_embeddings, bool keep, int64_t n_threads);
    NetworkInput(const NetworkInput&) = delete;
    NetworkInput& operator=(const NetworkInput&) = delete;

    int64_t width() const { return plan_.inputs_width; }
    void forward(const float* table, const float* phi, const float* w0, float* inputs);
    // After `forward`, and only if the batch was made to `keep` what this needs.
    void backward(const float* w0, const float* d_inputs, float* d_values, float* d_phi, float* d_w0) const;
    bool can_go_back() const { return e_ != nullptr && !plan_.few_rows; }

  private:
    void choose_hosts();

    std::shared_ptr<const Lookup> lookup_;
    Refinement refinement_;
    std::vector<Column> columns_;
    std::vector<Host> hosts_;
    std::vector<std::vector<Guest>> guests_;
    Plan plan_{};
    std::unique_ptr<Borrowed> values_, e_, applied_, packed_, cells_;
};

// The columns of a batch without any plan for pairs, for sums over columns and slots.
std::vector<Column> columns_of(const Lookup& lookup, const Numbers& numbers);

}  // namespace fielddep
