// The C interface of a program's operators; see api.cpp. Each returns 0, or -1 and an error.
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "api.h"
#include "draw.h"
#include "experts.h"
#include "lora.h"
#include "row_operators.h"

using treadle::columns;
using treadle::guarded;
using treadle::Program;
using treadle::View;

TREADLE_API std::int32_t treadle_embedding(Program* program, std::int32_t table, treadle::Embedding::Index index,
                                           View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Embedding>(program->weight(table), index, columns(*program, out));
    return 0;
  });
}

// `separator`: the token that ends a sequence's first segment, or -1 where there is one segment.
TREADLE_API std::int32_t treadle_segment_embedding(Program* program, std::int32_t table, std::int32_t separator,
                                                   View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::SegmentEmbedding>(program->weight(table), separator, columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_rms_norm(Program* program, View x, std::int32_t weight, float epsilon, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::RmsNorm>(program->kernels(), columns(*program, x), program->constant(weight),
                                            epsilon, columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_linear(Program* program, View x, std::int32_t weight, treadle::Epilogue epilogue,
                                        View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Linear>(program->kernels(), columns(*program, x), program->weight(weight), epilogue,
                                           columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_round(Program* program, View x, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Round>(program->kernels(), columns(*program, x), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_rope(Program* program, View x, std::int32_t angles) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Rope>(program->kernels(), columns(*program, x), program->constant(angles),
                                         program->cache().shape().head_dim);
    return 0;
  });
}

TREADLE_API std::int32_t treadle_write_kv(Program* program, View k, View v, std::int32_t layer) {
  return guarded(-1, [&] {
    program->add_operator<treadle::WriteKv>(program->kernels(), program->cache(), layer, columns(*program, k),
                                            columns(*program, v), treadle::WriteKv::Turn{});
    return 0;
  });
}

TREADLE_API std::int32_t treadle_rope_write_kv(Program* program, View q, View k, View v, std::int32_t angles,
                                               std::int32_t layer) {
  return guarded(-1, [&] {
    const treadle::WriteKv::Turn turn{columns(*program, q), program->constant(angles)};
    program->add_operator<treadle::WriteKv>(program->kernels(), program->cache(), layer, columns(*program, k),
                                            columns(*program, v), turn);
    return 0;
  });
}

// `window`: positions that a row sees, or 0 for all before it.
TREADLE_API std::int32_t treadle_attention(Program* program, View q, std::int32_t layer, std::int32_t window,
                                           View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Attention>(program->kernels(), program->cache(), layer,
                                              treadle::Sight{window > 0 ? window : treadle::Sight::kNoWindow},
                                              columns(*program, q), columns(*program, out));
    return 0;
  });
}

// `window`: positions that a row sees up to its own, and as many from its own on; or 0 for all of its sequence.
TREADLE_API std::int32_t treadle_bidirectional_attention(Program* program, View q, std::int32_t layer,
                                                         std::int32_t window, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Attention>(program->kernels(), program->cache(), layer,
                                              treadle::Sight{window > 0 ? window : treadle::Sight::kNoWindow, true},
                                              columns(*program, q), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_layer_norm(Program* program, View x, std::int32_t weight, std::int32_t bias,
                                            float epsilon, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::LayerNorm>(program->kernels(), columns(*program, x), program->constant(weight),
                                              program->constant(bias), epsilon, columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_head_norm(Program* program, View x, std::int32_t weight, float epsilon) {
  return guarded(-1, [&] {
    program->add_operator<treadle::HeadNorm>(program->kernels(), columns(*program, x), program->constant(weight),
                                             epsilon, program->cache().shape().head_dim);
    return 0;
  });
}

// `x` is a whole buffer.
TREADLE_API std::int32_t treadle_add_bias(Program* program, View x, std::int32_t bias) {
  return guarded(-1, [&] {
    program->add_operator<treadle::AddBias>(program->kernels(), columns(*program, x), program->constant(bias));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_relu(Program* program, View x, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Activation>(program->kernels().relu, columns(*program, x), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_gelu(Program* program, View x, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Activation>(program->kernels().gelu, columns(*program, x), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_erf_gelu(Program* program, View x, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Activation>(program->kernels().erf_gelu, columns(*program, x),
                                               columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_tanh(Program* program, View x, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Activation>(program->kernels().tanh, columns(*program, x), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_silu_mul(Program* program, View gate, View up, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::GatedActivation>(program->kernels().silu_mul, columns(*program, gate),
                                                    columns(*program, up), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_erf_gelu_mul(Program* program, View gate, View up, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::GatedActivation>(program->kernels().erf_gelu_mul, columns(*program, gate),
                                                    columns(*program, up), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_add(Program* program, View a, View b, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Add>(program->kernels(), columns(*program, a), columns(*program, b),
                                        columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_route(Program* program, View x, std::int32_t num_chosen, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Route>(columns(*program, x), num_chosen, columns(*program, out));
    return 0;
  });
}

// `gates_up` (in halves) and `downs`: the weights of each expert.
TREADLE_API std::int32_t treadle_experts(Program* program, View x, View routing, std::int32_t num_experts,
                                         const std::int32_t* gates_up, const std::int32_t* downs,
                                         std::int32_t num_chosen, View out) {
  return guarded(-1, [&] {
    std::vector<treadle::Expert> experts;
    for (int i = 0; i < num_experts; ++i) experts.push_back({&program->weight(gates_up[i]), &program->weight(downs[i])});
    const auto slots = std::make_shared<treadle::ExpertSlots>(
        program->kernels(), columns(*program, x), columns(*program, routing), std::move(experts),
        program->limits().max_rows, num_chosen, columns(*program, out));
    using treadle::ExpertPhase;
    for (ExpertPhase phase : {ExpertPhase::gather, ExpertPhase::gates, ExpertPhase::outputs, ExpertPhase::sum})
      program->add_operator<treadle::ExpertOperator>(slots, phase);
    return 0;
  });
}

// `shrinks` and `expands`: the weights of each adapter, or -1 where it leaves the product alone. `sums` and `between`:
// buffers of the largest rank.
TREADLE_API std::int32_t treadle_lora(Program* program, View x, std::int32_t num_adapters, const std::int32_t* shrinks,
                                      const std::int32_t* expands, View sums, View between, View out) {
  return guarded(-1, [&] {
    std::vector<treadle::LowRank> adapters(num_adapters);
    for (int i = 0; i < num_adapters; ++i)
      if (shrinks[i] >= 0) adapters[i] = {&program->weight(shrinks[i]), &program->weight(expands[i])};
    const treadle::Columns narrow = columns(*program, between);
    program->count_adapters(num_adapters);
    program->add_operator<treadle::LoraShrink>(program->kernels(), columns(*program, x), adapters,
                                               columns(*program, sums), narrow);
    program->add_operator<treadle::LoraExpand>(program->kernels(), std::move(adapters), narrow, columns(*program, out));
    return 0;
  });
}

// The device looks behind the last operator for what waits.
TREADLE_API std::int32_t treadle_poll(Program* program) {
  program->poll_behind_last();
  return 0;
}

TREADLE_API std::int32_t treadle_select_draws(Program* program, View x, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::SelectDraws>(columns(*program, x), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_select_first(Program* program, View x, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::SelectFirst>(columns(*program, x), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_mean_pool(Program* program, View x, View out) {
  return guarded(-1, [&] {
    program->add_operator<treadle::MeanPool>(columns(*program, x), columns(*program, out));
    return 0;
  });
}

TREADLE_API std::int32_t treadle_draw(Program* program, View logits) {
  return guarded(-1, [&] {
    program->add_operator<treadle::Draw>(program->kernels(), columns(*program, logits));
    return 0;
  });
}
