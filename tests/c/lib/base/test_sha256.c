/* SHA-256 against the examples of FIPS 180-4 and of NIST's CAVS vectors, and in any pieces. */
#include <string.h>

#include "check.h"
#include "lib/base/sha256.h"

static void hash_in_pieces(const uint8_t *data, size_t bytes, size_t piece,
                           char hex[GPR_SHA256_HEX])
{
    uint8_t digest[GPR_SHA256_BYTES];
    gpr_sha256 hash;

    gpr_sha256_begin(&hash);
    for (size_t done = 0; done < bytes; done += piece) {
        gpr_sha256_add(&hash, data + done, bytes - done < piece ? bytes - done : piece);
    }
    gpr_sha256_end(&hash, digest);
    gpr_sha256_hex(digest, hex);
}

static void test_published_digests(void)
{
    static const struct {
        const char *text;
        const char *digest;
    } published[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrl"
         "mnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char hex[GPR_SHA256_HEX];

    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        const size_t bytes = strlen(published[i].text);
        hash_in_pieces((const uint8_t *)published[i].text, bytes, bytes > 0 ? bytes : 1, hex);
        CHECK(strcmp(hex, published[i].digest) == 0, "\"%s\": %s", published[i].text, hex);
    }
}

static void test_a_million_letters(void)
{
    static uint8_t letters[1000000];
    char hex[GPR_SHA256_HEX];

    memset(letters, 'a', sizeof letters);
    hash_in_pieces(letters, sizeof letters, sizeof letters, hex);
    CHECK(strcmp(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0") == 0,
          "%s", hex);
}

/* Lengths around the block's and the padding's edges; pieces of every size give what the whole
 * gives, and no two lengths of the same bytes the same. */
static void test_pieces_do_not_matter_and_lengths_do(void)
{
    uint8_t data[200];
    char whole[GPR_SHA256_HEX], pieces[GPR_SHA256_HEX], last[GPR_SHA256_HEX] = "";

    memset(data, 0, sizeof data);
    for (size_t bytes = 0; bytes <= sizeof data; bytes++) {
        hash_in_pieces(data, bytes, sizeof data, whole);
        CHECK(strcmp(whole, last) != 0, "%zu zeros hash like one fewer", bytes);
        memcpy(last, whole, sizeof last);
        for (size_t piece = 1; piece < 80; piece += 7) {
            hash_in_pieces(data, bytes, piece, pieces);
            CHECK(strcmp(whole, pieces) == 0, "%zu bytes in pieces of %zu", bytes, piece);
        }
    }
}

int main(void)
{
    check_begin();
    test_published_digests();
    test_a_million_letters();
    test_pieces_do_not_matter_and_lengths_do();
    return check_end();
}
