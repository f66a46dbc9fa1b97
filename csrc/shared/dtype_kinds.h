/* Kinds of dtypes: symbols of csrc/registry/dtypes.def, which the library and kernels read. */
#ifndef GPR_SHARED_DTYPE_KINDS_H
#define GPR_SHARED_DTYPE_KINDS_H

typedef enum gpr_kind {
    GPR_KIND_BOOL,
    GPR_KIND_SIGNED,
    GPR_KIND_UNSIGNED,
    GPR_KIND_FLOAT,
    GPR_KIND_COMPLEX
} gpr_kind;

#endif
