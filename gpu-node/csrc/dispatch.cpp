// Which level a machine gets, by what its processor says when the library is used.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace treadle {

namespace level_plain {
extern const Kernels kTable;
}

#ifdef __x86_64__
namespace level_avx2 {
extern const Kernels kTable;
}
namespace level_avx512 {
extern const Kernels kTable;
}
namespace level_amx {
extern const Kernels kTable;
}
#endif

namespace {

#if defined(__x86_64__) && defined(__linux__)

// The matrix unit's registers are large, so a process has to ask the system for them before it uses them.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Whether two levels agree on a product. The matrix unit is rare, and must not be trusted for its name alone.
bool agree(const Kernels& one, const Kernels& other) {
  constexpr int kRows = 50, kInputs = 96;
  std::vector<Bf16> x(kRows * kInputs), panel(kInputs * kPanelColumns);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<Bf16>(0x3f00 + i * 37 % 256);
  for (std::size_t i = 0; i < panel.size(); ++i) panel[i] = static_cast<Bf16>((i % 3 ? 0x3f00 : 0xbf00) + i * 53 % 256);
  std::vector<float> outs[2];
  const Kernels* levels[] = {&one, &other};
  for (int i = 0; i < 2; ++i) {
    outs[i].resize(kRows * kPanelColumns);
    levels[i]->linear({x.data(), kInputs, panel.data(), kInputs / kPair, kRows, Epilogue::store, outs[i].data(),
                       kPanelColumns});
  }
  return std::equal(outs[0].begin(), outs[0].end(), outs[1].begin(),
                    [](float a, float b) { return std::abs(a - b) < 1e-3F; });
}

bool has_tiles() {
  static const bool has =
      __builtin_cpu_supports("amx-bf16") && may_use_tiles() && agree(level_amx::kTable, level_avx512::kTable);
  return has;
}

#elif defined(__x86_64__)

bool has_tiles() { return false; }

#endif

bool is_wanted(const Kernels& table, const char* name) { return *name == '\0' || std::strcmp(name, table.name) == 0; }

}  // namespace

const Kernels* find_kernels(const char* name) {
#ifdef __x86_64__
  // the operating system's part, to save the wide registers, is in what the compiler's test asks
  const bool has_avx512 = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vbmi");
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx512 && is_wanted(level_amx::kTable, name) && has_tiles()) return &level_amx::kTable;
  if (has_avx512 && is_wanted(level_avx512::kTable, name)) return &level_avx512::kTable;
  if (has_avx2 && is_wanted(level_avx2::kTable, name)) return &level_avx2::kTable;
#endif
  return is_wanted(level_plain::kTable, name) ? &level_plain::kTable : nullptr;
}

}  // namespace treadle
