// For any processor, with the compiler's default instructions.
#define TREADLE_LEVEL level_plain
#define TREADLE_NAME "plain"
#define TREADLE_LANES 4
#define TREADLE_DOT 0
#define TREADLE_ROWS 1
#include "level_table.h"
