// Compiled with -mamx-tile -mamx-bf16 beside the flags of avx512: Intel Sapphire Rapids and later. Products run on the
// matrix unit, for any number of rows, so that a row has the same bits alone and in a batch; the rest is as in avx512.
#ifdef __AMX_BF16__
#define TREADLE_LEVEL level_amx
#define TREADLE_NAME "amx"
#define TREADLE_LANES 16
#define TREADLE_DOT 1
#define TREADLE_ROWS 12
#define TREADLE_LINEAR tile_linear
#include "tile_kernel.h"

#include "level_table.h"
#endif
