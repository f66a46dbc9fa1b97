/* SHA-256 (FIPS 180-4): names cache entries and proves them undamaged. */
#ifndef GPR_LIB_SHA256_H
#define GPR_LIB_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { GPR_SHA256_BYTES = 32, GPR_SHA256_HEX = 65 };

typedef struct gpr_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    uint8_t block[64];
} gpr_sha256;

void gpr_sha256_begin(gpr_sha256 *hash);
void gpr_sha256_add(gpr_sha256 *hash, const void *data, size_t bytes);
void gpr_sha256_end(gpr_sha256 *hash, uint8_t digest[GPR_SHA256_BYTES]);

/* Lower-case hexadecimal, NUL-terminated. */
void gpr_sha256_hex(const uint8_t digest[GPR_SHA256_BYTES], char hex[GPR_SHA256_HEX]);

/* The hash of a text without its NUL, in hexadecimal. */
void gpr_sha256_of_text(const char *text, char hex[GPR_SHA256_HEX]);

#endif
