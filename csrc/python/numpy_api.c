/* NumPy's C API: the table that the macros of the other files look functions up in. */
#define GLUE_IMPORTS_NUMPY
#include "python/glue.h"

int glue_import_numpy(void)
{
    return PyArray_ImportNumPyAPI();
}
