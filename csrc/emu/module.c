/* Loading the shared objects that compiler.c made, and reading symbols and source lines from their
 * ELF tables. */
#define _GNU_SOURCE /* dlinfo */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "emu/emu.h"

enum { INVALID_IMAGE = 200, NOT_FOUND = 500 };

/* ---------------------------------------------------------------- files ---------------------- */

/* A new folder with the image in it, whose name is in `path`. 0: it cannot be written. */
static int write_image(const engine_module *module, char folder[FOLDER_ROOM], char path[PATH_ROOM])
{
    size_t done = 0;

    if (!make_folder(folder)) return 0;
    (void)snprintf(path, PATH_ROOM, "%s/module.so", folder);
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    while (file >= 0 && done < module->image_bytes) {
        const ssize_t some = write(file, module->image + done, module->image_bytes - done);
        if (some <= 0) break;
        done += (size_t)some;
    }
    if (file >= 0) (void)close(file);
    if (done < module->image_bytes) remove_folder(folder);
    return done == module->image_bytes;
}

/* An ELF file ends with its table of sections. */
static size_t size_of_image(const void *image)
{
    const ElfW(Ehdr) *header = image;

    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_shoff == 0) return 0;
    return header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
}

/* ---------------------------------------------------------------- shared variables ----------- */

/* The name of a variable inside a function, from the end of its mangled name: "_ZZ...E7partial"
 * or "_ZZ...E7partial_0". */
static void name_of_local(const char *mangled, char name[48])
{
    size_t length = strlen(mangled);
    const char *last = strrchr(mangled, '_');

    if (last > mangled && last[1] != '\0' && strspn(last + 1, "0123456789") == strlen(last + 1))
        length = (size_t)(last - mangled);
    for (size_t size = 1; size < length && size < 48; size++) {
        char digits[8];
        const int count = snprintf(digits, sizeof digits, "%zu", size);
        if (length < size + (size_t)count + 3) break;
        const char *start = mangled + length - size;
        if (memcmp(start - count, digits, (size_t)count) == 0 && start[-count - 1] == 'E') {
            (void)snprintf(name, 48, "%.*s", (int)size, start);
            return;
        }
    }
    (void)snprintf(name, 48, "shared memory");
}

/* The name of a variable outside functions: "count" of "count", "_ZL5count", "_ZN4mine5countE". */
static void name_of_global(const char *mangled, char name[48])
{
    size_t length = strlen(mangled);
    const char *start = mangled, *end = mangled + length;

    if (strncmp(mangled, "_Z", 2) == 0) {
        for (const char *c = mangled; *c != '\0'; c++) {
            char *rest = NULL;
            const unsigned long size = strtoul(c, &rest, 10);
            if (*c < '1' || *c > '9' || size > (unsigned long)(mangled + length - rest)) continue;
            start = rest;
            end = rest + size;
            c = end - 1;
        }
    }
    (void)snprintf(name, 48, "%.*s", (int)(end - start), start);
}

static int by_address(const void *a, const void *b)
{
    const shared_variable *x = a, *y = b;

    return (x->start > y->start) - (x->start < y->start);
}

static const char dynamic_name[] = "gpr_emu_dynamic_shared";

/* What the module itself has in memory that can be written (cuda_on_cpu.h), and the compiler. */
static int is_own(const char *name)
{
    static const char *const indices[] = {"threadIdx", "blockIdx", "blockDim", "gridDim"};

    for (size_t i = 0; i < sizeof indices / sizeof indices[0]; i++) {
        if (strcmp(name, indices[i]) == 0) return 1;
    }
    return strstr(name, "gpr_emu") != NULL || strncmp(name, "__", 2) == 0;
}

/* Notes a variable in memory that can be written, by its name: what functions have of their own is
 * shared, the others are global. 0: out of memory. */
static int add_variable(engine_module *module, const ElfW(Sym) * symbol, const char *name,
                        size_t *shared_room, size_t *room)
{
    const int is_dynamic = strcmp(name, dynamic_name) == 0;
    const uintptr_t start = module->base + symbol->st_value;

    if (is_dynamic || strncmp(name, "_ZZ", 3) == 0) {
        if (!grow((void **)&module->shared, shared_room, module->shared_count,
                  sizeof *module->shared))
            return 0;
        shared_variable *variable = &module->shared[module->shared_count++];
        variable->start = start;
        variable->bytes = symbol->st_size;
        if (is_dynamic)
            (void)snprintf(variable->name, sizeof variable->name, "dynamic shared memory");
        else
            name_of_local(name, variable->name);
        module->shared_bytes += variable->bytes;
        return 1;
    }
    if (is_own(name) || symbol->st_size == 0) return 1;
    if (!grow((void **)&module->variables, room, module->variable_count, sizeof *module->variables))
        return 0;
    device_variable *variable = &module->variables[module->variable_count];
    *variable = (device_variable){.memory = {.start = start, .bytes = symbol->st_size}};
    variable->memory.written = malloc(symbol->st_size);
    if (variable->memory.written == NULL) return 0;
    memset(variable->memory.written, 1, symbol->st_size);
    name_of_global(name, variable->name);
    module->variable_count++;
    return 1;
}

/* The module's variables in shared and in global memory. */
static int find_variables(engine_module *module)
{
    const ElfW(Ehdr) *header = (const void *)module->image;
    const ElfW(Shdr) *sections = (const void *)(module->image + header->e_shoff);
    size_t shared_room = 0, room = 0;

    for (int i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const ElfW(Sym) *symbols = (const void *)(module->image + sections[i].sh_offset);
        const char *names = module->image + sections[sections[i].sh_link].sh_offset;
        for (size_t j = 0; j < sections[i].sh_size / sizeof *symbols; j++) {
            const ElfW(Sym) *symbol = &symbols[j];
            if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || symbol->st_shndx >= header->e_shnum)
                continue;
            if ((sections[symbol->st_shndx].sh_flags & SHF_WRITE) == 0) continue;
            if (!add_variable(module, symbol, names + symbol->st_name, &shared_room, &room))
                return 0;
        }
    }
    for (unsigned i = 0; i < module->variable_count; i++)
        module->variables[i].memory.name = module->variables[i].name;
    if (module->shared_count == 0) return 1;
    qsort(module->shared, module->shared_count, sizeof *module->shared, by_address);
    for (unsigned i = 0; i < module->shared_count; i++) {
        if (module->shared[i].bytes == GPR_EMU_DYNAMIC_BYTES &&
            strcmp(module->shared[i].name, "dynamic shared memory") == 0)
            module->dynamic = &module->shared[i];
    }
    const shared_variable *last = &module->shared[module->shared_count - 1];
    module->shared_low = module->shared[0].start;
    module->shared_high = last->start + (last->bytes > GPR_EMU_SHARED_SPACING
                                             ? last->bytes /* which no GPU has room for */
                                             : GPR_EMU_SHARED_SPACING);
    /* Behind the module's last page the loader may have put anything, a global allocation too. */
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
                    end = (module->high + page - 1) / page * page;
    if (module->shared_high > end) module->shared_high = end;
    return 1;
}

void module_set_dynamic(engine_module *module, unsigned bytes)
{
    if (module->dynamic == NULL) return;
    module->shared_bytes += bytes;
    module->shared_bytes -= module->dynamic->bytes;
    module->dynamic->bytes = bytes;
}

const driver_allocation *module_variable(const engine_module *module, uintptr_t address)
{
    for (unsigned i = 0; i < module->variable_count; i++) {
        const driver_allocation *memory = &module->variables[i].memory;
        if (address - memory->start < memory->bytes) return memory;
    }
    return NULL;
}

const shared_variable *module_shared(const engine_module *module, uintptr_t address)
{
    unsigned low = 0, high = module->shared_count;

    if (address - module->shared_low >= module->shared_high - module->shared_low) return NULL;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (module->shared[middle].start <= address)
            low = middle;
        else
            high = middle;
    }
    return &module->shared[low];
}

size_t module_shared_before(const engine_module *module, const shared_variable *end)
{
    enum { ALIGNMENT = 8 };
    size_t bytes = 0;

    for (const shared_variable *v = module->shared; v < end; v++)
        bytes += (v->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return bytes;
}

/* ---------------------------------------------------------------- loading -------------------- */

static void set_extent(engine_module *module)
{
    const ElfW(Ehdr) *header = (const void *)module->image;
    const ElfW(Phdr) *segments = (const void *)(module->image + header->e_phoff);
    const struct link_map *map = NULL;

    (void)dlinfo(module->handle, RTLD_DI_LINKMAP, &map);
    module->base = module->low = module->high = map->l_addr;
    for (int i = 0; i < header->e_phnum; i++) {
        const uintptr_t end = module->base + segments[i].p_vaddr + segments[i].p_memsz;
        if (segments[i].p_type == PT_LOAD && end > module->high) module->high = end;
    }
}

CUresult engine_load(const void *image, int cc, engine_module **loaded)
{
    const size_t bytes = size_of_image(image);
    char folder[FOLDER_ROOM], path[PATH_ROOM];
    CUresult status = INVALID_IMAGE;

    (void)cc; /* compiler.c compiles for any GPU */
    if (bytes == 0) return INVALID_IMAGE;
    engine_module *module = calloc(1, sizeof *module);
    if (module == NULL || (module->image = malloc(bytes)) == NULL) {
        free(module);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(module->image, image, bytes);
    module->image_bytes = bytes;
    /* The loader takes a name that it has met for the object it met it with: each folder is new. */
    if (!write_image(module, folder, path)) goto fail;
    module->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    remove_folder(folder);
    if (module->handle == NULL) goto fail;
    module->code = dlsym(module->handle, "gpr_emu_exports");
    if (module->code == NULL || module->code->abi != GPR_EMU_ABI) goto fail;
    set_extent(module);
    status = CUDA_ERROR_OUT_OF_MEMORY;
    module->kernels = calloc(module->code->entry_count, sizeof *module->kernels);
    if (module->kernels == NULL || !find_variables(module)) goto fail;
    for (unsigned i = 0; i < module->code->entry_count; i++) {
        module->kernels[i] = (engine_kernel){module, &module->code->entries[i]};
    }
    *loaded = module;
    return CUDA_SUCCESS;
fail:
    engine_unload(module);
    return status;
}

void engine_unload(engine_module *module)
{
    if (module->handle != NULL) (void)dlclose(module->handle);
    table_free(&module->site_of);
    free(module->sites);
    free(module->shared);
    for (unsigned i = 0; i < module->variable_count; i++) free(module->variables[i].memory.written);
    free(module->variables);
    free(module->kernels);
    free(module->image);
    free(module);
}

CUresult engine_find(engine_module *module, const char *name, engine_kernel **kernel)
{
    for (unsigned i = 0; i < module->code->entry_count; i++) {
        if (strcmp(module->code->entries[i].name, name) != 0) continue;
        *kernel = &module->kernels[i];
        return CUDA_SUCCESS;
    }
    return NOT_FOUND;
}

/* ---------------------------------------------------------------- source lines --------------- */

unsigned module_site(engine_module *module, const void *pc)
{
    int is_new = 0;
    uint64_t *index = table_at(&module->site_of, (uintptr_t)pc, &is_new);

    if (index == NULL) return 0;
    if (is_new) {
        if (!grow((void **)&module->sites, &module->site_room, module->site_count,
                  sizeof *module->sites))
            return 0;
        module->sites[module->site_count] = (site){.pc = (uintptr_t)pc};
        *index = ++module->site_count;
    }
    return (unsigned)*index - 1;
}

/* Files of helpers: an instruction there counts for its caller. */
static int is_helper(const char *file)
{
    static const char *const helpers[] = {"cuda_on_cpu.h", "plain_cuda.h",  "cooperative_groups.h",
                                          "types.cuh",     "vector.cuh",    "conversions.cuh",
                                          "ordering.cuh",  "operators.cuh", "kernel_traits.cuh"};

    for (size_t i = 0; i < sizeof helpers / sizeof helpers[0]; i++) {
        if (strcmp(file, helpers[i]) == 0) return 1;
    }
    return 0;
}

/* One frame, "/some/folder/sequential.cuh:39 (discriminator 2)"; 0 if addr2line finds none. */
static int parse_frame(const char *text, source_line *where)
{
    const char *colon = strrchr(text, ':'), *slash = NULL;

    if (colon == NULL || strtol(colon + 1, NULL, 10) <= 0) return 0;
    for (const char *c = text; c < colon; c++) {
        if (*c == '/') slash = c;
    }
    const char *start = slash != NULL ? slash + 1 : text;
    (void)snprintf(where->file, sizeof where->file, "%.*s", (int)(colon - start), start);
    where->line = (int)strtol(colon + 1, NULL, 10);
    return 1;
}

/* addr2line prints, for each address, the address and then its frames from the innermost
 * function on out. */
static void read_lines(engine_module *module, FILE *text, const unsigned *asked, unsigned count)
{
    char line[1024];
    unsigned next = 0;
    site *at = NULL;

    while (fgets(line, sizeof line, text) != NULL) {
        source_line frame = {"", 0};
        if (strncmp(line, "0x", 2) == 0) {
            at = next < count ? &module->sites[asked[next++]] : NULL;
        } else if (at != NULL && parse_frame(line, &frame)) {
            if (at->where.line == 0 || is_helper(at->where.file))
                at->where = frame;
            else if (at->call.line == 0)
                at->call = frame;
            /* of the kernel's file the innermost function, whose line tells most */
            if (at->from.line == 0 ||
                (!is_helper(frame.file) && strcmp(frame.file, at->from.file) != 0))
                at->from = frame;
        }
    }
}

static int all_looked_up(const engine_module *module)
{
    for (unsigned i = 0; i < module->site_count; i++) {
        if (!module->sites[i].looked_up) return 0;
    }
    return 1;
}

void module_look_up(engine_module *module)
{
    enum { BATCH = 128, BEFORE = 5, ADDRESS_ROOM = 20 };
    static const char output[] = "lines";
    char folder[FOLDER_ROOM], path[PATH_ROOM], lines[PATH_ROOM], addresses[BATCH][ADDRESS_ROOM];
    char *arguments[BEFORE + BATCH + 1] = {"addr2line", "-a", "-i", "-e", path};
    unsigned asked[BATCH];

    if (all_looked_up(module) || !write_image(module, folder, path)) return;
    (void)snprintf(lines, sizeof lines, "%s/%s", folder, output);
    for (unsigned from = 0; from < module->site_count;) {
        unsigned count = 0;
        for (; from < module->site_count && count < BATCH; from++) {
            site *s = &module->sites[from];
            if (s->looked_up) continue;
            s->looked_up = 1;
            /* pc is where the thread returns to: the call is before it. */
            (void)snprintf(addresses[count], ADDRESS_ROOM, "0x%zx",
                           (size_t)(s->pc - 1 - module->base));
            arguments[BEFORE + count] = addresses[count];
            asked[count++] = from;
        }
        arguments[BEFORE + count] = NULL;
        if (count == 0 || run_program(arguments, folder, output) != 0) break;
        FILE *text = fopen(lines, "r");
        if (text == NULL) break;
        read_lines(module, text, asked, count);
        (void)fclose(text);
    }
    remove_folder(folder);
}
