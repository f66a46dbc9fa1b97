/* The data structures of DLPack (https://dmlc.github.io/dlpack/latest/), as much of them as is used here: how array libraries pass
 * memory to each other. Names and layouts are the specification's, so that they can be looked up there.
 *
 * A capsule "dltensor_versioned" holds a DLManagedTensorVersioned, an older "dltensor" a DLManagedTensor. Who takes the structure out
 * renames the capsule to "used_..." and calls the deleter, once, when it is done. */
#ifndef GLUE_DLPACK_H
#define GLUE_DLPACK_H

#include <stdint.h>

enum { DLPACK_MAJOR_VERSION = 1, DLPACK_MINOR_VERSION = 3 };

typedef struct DLPackVersion {
    uint32_t major, minor;
} DLPackVersion;

typedef enum DLDeviceType {
    kDLCPU = 1,
    kDLCUDA = 2,
    kDLCUDAHost = 3, /* pinned */
    kDLCUDAManaged = 13
} DLDeviceType;

typedef struct DLDevice {
    int32_t device_type; /* a DLDeviceType, or one of another kind of card */
    int32_t device_id;
} DLDevice;

enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5, kDLBool = 6 };

typedef struct DLDataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes; /* elements of a vector type */
} DLDataType;

typedef struct DLTensor {
    void *data; /* may be NULL if there are no elements */
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: C-contiguous */
    uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self); /* may be NULL */
} DLManagedTensor;

enum { DLPACK_FLAG_BITMASK_READ_ONLY = 1 };

/* Of another major version than ours only version, manager_ctx, deleter and flags mean what they say here. */
typedef struct DLManagedTensorVersioned {
    DLPackVersion version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self); /* may be NULL */
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

/* ---- the C exchange API: an array type's attribute __dlpack_c_exchange_api__, a capsule "dlpack_exchange_api" ---- */

typedef struct DLPackExchangeAPIHeader {
    DLPackVersion version;
    struct DLPackExchangeAPIHeader *prev_api; /* the same for an older major version, or NULL */
} DLPackExchangeAPIHeader;

/* Each returns 0, or -1 with a Python exception set. None of them orders any streams. */
typedef struct DLPackExchangeAPI {
    DLPackExchangeAPIHeader header;
    int (*managed_tensor_allocator)(DLTensor *prototype, DLManagedTensorVersioned **out, void *error_ctx,
                                    void (*set_error)(void *error_ctx, const char *kind, const char *message));
    int (*managed_tensor_from_py_object_no_sync)(void *py_object, DLManagedTensorVersioned **out);
    int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned *tensor, void **out_py_object); /* takes it */
    /* Valid while py_object is not changed; the function may be NULL. */
    int (*dltensor_from_py_object_no_sync)(void *py_object, DLTensor *out);
    int (*current_work_stream)(DLDeviceType device_type, int32_t device_id, void **out_current_stream);
} DLPackExchangeAPI;

#endif
