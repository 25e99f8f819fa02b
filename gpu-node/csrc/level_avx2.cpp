// Compiled with -mavx2 -mfma: x86 processors since 2013. Products are made in float32; 16 registers hold 3 rows of sums.
#ifdef __AVX2__
#define TREADLE_LEVEL level_avx2
#define TREADLE_NAME "avx2"
#define TREADLE_LANES 8
#define TREADLE_DOT 0
#define TREADLE_ROWS 3
#include "level_table.h"
#endif
