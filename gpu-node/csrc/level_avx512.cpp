// Compiled with -mavx512bf16, -mavx512vbmi and what they build on: AMD Zen 4, Intel Sapphire Rapids, and later.
// 32 registers hold 14 rows of sums and one row of weights.
#ifdef __AVX512BF16__
#define TREADLE_LEVEL level_avx512
#define TREADLE_NAME "avx512"
#define TREADLE_LANES 16
#define TREADLE_DOT 1
#define TREADLE_ROWS 12
#include "level_table.h"
#endif
