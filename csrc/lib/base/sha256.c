/* SHA-256 as FIPS 180-4 defines it; the names of section 6.2.2 are kept. */
#include "lib/base/sha256.h"

#include <string.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void add_block(gpr_sha256 *hash, const uint8_t *block)
{
    uint32_t W[64], s[8];

    for (int t = 0; t < 16; t++) {
        W[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    }
    for (int t = 16; t < 64; t++) {
        const uint32_t sigma0 = rotate(W[t - 15], 7) ^ rotate(W[t - 15], 18) ^ W[t - 15] >> 3;
        const uint32_t sigma1 = rotate(W[t - 2], 17) ^ rotate(W[t - 2], 19) ^ W[t - 2] >> 10;
        W[t] = sigma1 + W[t - 7] + sigma0 + W[t - 16];
    }
    memcpy(s, hash->state, sizeof s);
    for (int t = 0; t < 64; t++) {
        const uint32_t Sigma1 = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
        const uint32_t Ch = (s[4] & s[5]) ^ (~s[4] & s[6]);
        const uint32_t T1 = s[7] + Sigma1 + Ch + K[t] + W[t];
        const uint32_t Sigma0 = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
        const uint32_t Maj = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        memmove(&s[1], &s[0], 7 * sizeof s[0]);
        s[4] += T1;
        s[0] = T1 + Sigma0 + Maj;
    }
    for (int i = 0; i < 8; i++) hash->state[i] += s[i];
}

void gpr_sha256_begin(gpr_sha256 *hash)
{
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(hash->state, initial, sizeof initial);
    hash->bytes = 0;
}

void gpr_sha256_add(gpr_sha256 *hash, const void *data, size_t bytes)
{
    const uint8_t *at = data;

    while (bytes > 0) {
        const size_t used = hash->bytes % 64;
        const size_t part = bytes < 64 - used ? bytes : 64 - used;
        memcpy(hash->block + used, at, part);
        hash->bytes += part;
        at += part;
        bytes -= part;
        if (hash->bytes % 64 == 0) add_block(hash, hash->block);
    }
}

void gpr_sha256_end(gpr_sha256 *hash, uint8_t digest[GPR_SHA256_BYTES])
{
    static const uint8_t padding[64] = {0x80};
    const uint64_t bits = hash->bytes * 8;
    const size_t used = hash->bytes % 64;
    uint8_t length[8];

    gpr_sha256_add(hash, padding, used < 56 ? 56 - used : 120 - used);
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)(bits >> (56 - 8 * i));
    gpr_sha256_add(hash, length, sizeof length);
    for (int i = 0; i < 32; i++) digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void gpr_sha256_hex(const uint8_t digest[GPR_SHA256_BYTES], char hex[GPR_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";

    for (int i = 0; i < GPR_SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * GPR_SHA256_BYTES] = '\0';
}

void gpr_sha256_of_text(const char *text, char hex[GPR_SHA256_HEX])
{
    uint8_t digest[GPR_SHA256_BYTES];
    gpr_sha256 hash;

    gpr_sha256_begin(&hash);
    gpr_sha256_add(&hash, text, strlen(text));
    gpr_sha256_end(&hash, digest);
    gpr_sha256_hex(digest, hex);
}
