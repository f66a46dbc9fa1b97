/* Looking inside: kernels, sources, devices, the last run, limits, the cache. Records leave as
 * dicts; the package's dataclasses give them types. */
#include "python/glue.h"

static PyObject *new_bool(int truth)
{
    return PyBool_FromLong(truth);
}

static PyObject *raise_unless_ok(PyObject *module, gpr_status status)
{
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- kernels -------------------- */

static PyObject *describe_kernel(const void *from, Py_ssize_t i)
{
    const glue_state *state = from;
    const int index = (int)i;
    gpr_kernel_info info;
    gpr_status status = GPR_OK;

    if (gpr_kernel_info_at(index, &info) != GPR_OK) return glue_raise(state);
    Py_BEGIN_ALLOW_THREADS
    status = gpr_kernel_available(index, 0);
    Py_END_ALLOW_THREADS
    return Py_BuildValue(
        "{ss ss ss ss ss ss ss ss sI sI sN sN sN si sN ss}", "name", info.name, "aliases",
        info.aliases, "family", info.family, "summary", info.summary, "removes", info.removes,
        "pays", info.pays, "source", info.source, "block_rule", info.block_rule, "block_size",
        info.block_size, "elements_per_thread", info.elements_per_thread, "takes_grid_size",
        new_bool(info.takes_grid_size), "commutative_only", new_bool(info.commutative_only),
        "deterministic", new_bool(info.deterministic), "min_compute_capability",
        info.min_compute_capability, "available", new_bool(status == GPR_OK), "reason",
        status == GPR_OK ? "" : gpr_last_error()->message);
}

static PyObject *kernels(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    glue_state *state = glue_state_of(module);

    if (glue_locate(state, 0) < 0) return NULL;
    return glue_new_list(gpr_kernel_count(), describe_kernel, state);
}

static PyObject *find_kernel(PyObject *module, PyObject *name)
{
    const glue_state *state = glue_state_of(module);
    gpr_kernel_info info;
    int index = 0;

    if (glue_read_kernel(state, name, &index) < 0) return NULL;
    if (index < 0 && gpr_find_kernel("auto", &index) != GPR_OK) return glue_raise(state);
    if (gpr_kernel_info_at(index, &info) != GPR_OK) return glue_raise(state);
    return PyUnicode_FromString(info.name);
}

static PyObject *sources(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    PyObject *files = PyDict_New();

    for (int i = 0; i < gpr_source_count() && files != NULL; i++) {
        const char *name = NULL, *text = NULL;
        PyObject *value = NULL;

        if (gpr_source_at(i, &name, &text) != GPR_OK) {
            Py_DECREF(files);
            return glue_raise(glue_state_of(module));
        }
        value = PyUnicode_FromString(text);
        if (value == NULL || PyDict_SetItemString(files, name, value) < 0) Py_CLEAR(files);
        Py_XDECREF(value);
    }
    return files;
}

/* ---------------------------------------------------------------- devices -------------------- */

static PyObject *describe_device(const void *state, Py_ssize_t ordinal)
{
    gpr_device_info info;
    gpr_status status = GPR_OK;

    Py_BEGIN_ALLOW_THREADS
    status = gpr_device_info_at((int)ordinal, &info);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    return Py_BuildValue(
        "{si ss sN si sK sK si si ss}", "ordinal", info.ordinal, "name", info.name,
        "compute_capability",
        Py_BuildValue("(ii)", info.compute_capability / 10, info.compute_capability % 10),
        "multiprocessors", info.multiprocessors, "memory_bytes",
        (unsigned long long)info.memory_bytes, "l2_bytes", (unsigned long long)info.l2_bytes,
        "memory_clock_khz", info.memory_clock_khz, "memory_bus_bits", info.memory_bus_bits, "uuid",
        info.uuid);
}

static PyObject *devices(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    const glue_state *state = glue_state_of(module);
    gpr_status status = GPR_OK;
    int count = 0;

    Py_BEGIN_ALLOW_THREADS
    status = gpr_device_count(&count);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(state);
    return glue_new_list(count, describe_device, state);
}

/* Why CUDA work cannot run in this process, or None if it can. */
static PyObject *why_no_cuda(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    gpr_status status = GPR_OK;

    if (glue_locate(glue_state_of(module), 0) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_cuda_available();
    Py_END_ALLOW_THREADS
    if (status == GPR_OK) Py_RETURN_NONE;
    return PyUnicode_FromString(gpr_last_error()->message);
}

/* The ordinal of the GPU that an argument `device` names: 0 unless it has a number. None for the
 * CPU. */
static PyObject *read_ordinal(PyObject *Py_UNUSED(module), PyObject *name)
{
    int device = 0;

    if (glue_read_device(name, &device) < 0) return NULL;
    if (device == GPR_DEVICE_CPU) Py_RETURN_NONE;
    return PyLong_FromLong(device < 0 ? 0 : device);
}

static PyObject *cuda_versions(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    int driver = 0, nvrtc = 0;

    if (glue_locate(glue_state_of(module), 1) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    gpr_cuda_versions(&driver, &nvrtc);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("(ii)", driver, nvrtc);
}

static PyObject *cpu_isa(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    return PyUnicode_FromString(gpr_cpu_isa());
}

/* A str, or NULL for None. */
static int read_optional_text(PyObject *object, const char **text)
{
    *text = NULL;
    if (object == Py_None) return 0;
    *text = PyUnicode_AsUTF8(object);
    return *text != NULL ? 0 : -1;
}

static PyObject *set_cpu_isa(PyObject *module, PyObject *name)
{
    const char *text = NULL;

    if (read_optional_text(name, &text) < 0) return NULL;
    return raise_unless_ok(module, gpr_set_cpu_isa(text));
}

static PyObject *set_path(PyObject *module, PyObject *path, gpr_status (*set)(const char *))
{
    PyObject *bytes = NULL, *result = NULL;

    if (path == Py_None) return raise_unless_ok(module, set(NULL));
    if (!PyUnicode_FSConverter(path, &bytes)) return NULL;
    result = raise_unless_ok(module, set(PyBytes_AS_STRING(bytes)));
    Py_DECREF(bytes);
    return result;
}

static PyObject *set_nvrtc_path(PyObject *module, PyObject *path)
{
    return set_path(module, path, gpr_set_nvrtc_path);
}

static PyObject *set_cccl_path(PyObject *module, PyObject *path)
{
    return set_path(module, path, gpr_set_cccl_path);
}

/* ---------------------------------------------------------------- the last run --------------- */

static PyObject *describe_stages(const gpr_run *run)
{
    static const char *const names[GPR_STAGE_COUNT] = {
        [GPR_STAGE_STAGE] = "stage",     [GPR_STAGE_UPLOAD] = "upload",
        [GPR_STAGE_KERNEL] = "kernel",   [GPR_STAGE_DOWNLOAD] = "download",
        [GPR_STAGE_COMPILE] = "compile",
    };
    PyObject *stages = PyDict_New();

    for (int i = 0; i < GPR_STAGE_COUNT && stages != NULL; i++) {
        PyObject *seconds = NULL;

        if (run->stage_seconds[i] < 0) continue; /* not timed: not there */
        seconds = PyFloat_FromDouble(run->stage_seconds[i]);
        if (seconds == NULL || PyDict_SetItemString(stages, names[i], seconds) < 0)
            Py_CLEAR(stages);
        Py_XDECREF(seconds);
    }
    return stages;
}

static PyObject *forget_run(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    gpr_forget_run();
    Py_RETURN_NONE;
}

static PyObject *last_run(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    const gpr_run *run = gpr_last_run();
    gpr_kernel_info kernel;

    if (run == NULL) Py_RETURN_NONE;
    if (gpr_kernel_info_at(run->kernel, &kernel) != GPR_OK)
        return glue_raise(glue_state_of(module));
    const int on_cpu = run->device < 0;
    const unsigned long long workers[2] = {run->block_size, run->grid_size};
    /* The CPU backend has no other kernels: it adds as `fast` does for those of GPUs. */
    const char *const name = on_cpu && !kernel.is_on_cpu ? "fast" : kernel.name;

    return Py_BuildValue(
        "{sN ss ss sK sK sK sK sI sK sK sK sd sN si si}", "device",
        on_cpu ? PyUnicode_FromString("cpu") : PyUnicode_FromFormat("cuda:%d", run->device),
        "kernel", name, "variant", run->variant, "block_size", on_cpu ? 0 : workers[0], "grid_size",
        on_cpu ? 0 : workers[1], "threads", on_cpu ? workers[0] : 0, "tasks",
        on_cpu ? workers[1] : 0, "launches", run->launches, "chunks",
        (unsigned long long)run->chunks, "elements", (unsigned long long)run->elements, "bytes",
        (unsigned long long)run->bytes, "seconds", run->seconds, "stages", describe_stages(run),
        "compiled", run->compiled, "cache_hits", run->cache_hits);
}

/* ---------------------------------------------------------------- limits and cache ----------- */

static PyObject *limits(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    gpr_limits current;

    gpr_get_limits(&current);
    return Py_BuildValue("{sK sK sI}", "device_bytes", (unsigned long long)current.device_bytes,
                         "pinned_bytes", (unsigned long long)current.pinned_bytes, "cpu_threads",
                         current.cpu_threads);
}

/* A limit that is not None; sizes beyond what the library can hold are its to refuse, so they
 * saturate. */
static int read_limit(PyObject *object, uint64_t most, uint64_t *limit)
{
    int overflow = 0;
    long long value = 0;

    if (object == Py_None) return 0;
    value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (value == -1 && PyErr_Occurred() != NULL) return -1;
    if (value < 0 || overflow < 0) {
        PyErr_SetString(PyExc_ValueError, "a limit cannot be negative");
        return -1;
    }
    *limit = overflow > 0 || (uint64_t)value > most ? most : (uint64_t)value;
    return 0;
}

static PyObject *set_limits(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    gpr_limits wanted;
    uint64_t threads = 0;

    if (count != 3) {
        PyErr_SetString(PyExc_TypeError,
                        "set_limits takes device_bytes, pinned_bytes, cpu_threads");
        return NULL;
    }
    gpr_get_limits(&wanted);
    threads = wanted.cpu_threads;
    if (read_limit(arguments[0], UINT64_MAX, &wanted.device_bytes) < 0) return NULL;
    if (read_limit(arguments[1], UINT64_MAX, &wanted.pinned_bytes) < 0) return NULL;
    if (read_limit(arguments[2], UINT32_MAX, &threads) < 0) return NULL;
    wanted.cpu_threads = (uint32_t)threads;
    return raise_unless_ok(module, gpr_set_limits(&wanted));
}

static PyObject *cache_info(PyObject *module, PyObject *Py_UNUSED(ignored))
{
    gpr_cache_info info;
    gpr_status status = GPR_OK;

    Py_BEGIN_ALLOW_THREADS
    status = gpr_cache_get_info(&info);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    return Py_BuildValue(
        "{sN ss sK sK sK sK sK sK sK}", "directory", PyUnicode_DecodeFSDefault(info.directory),
        "reason", info.reason != NULL ? info.reason : "", "entries",
        (unsigned long long)info.entries, "bytes", (unsigned long long)info.bytes, "limit_bytes",
        (unsigned long long)info.limit_bytes, "hits", (unsigned long long)info.hits, "misses",
        (unsigned long long)info.misses, "writes", (unsigned long long)info.writes, "faults",
        (unsigned long long)info.faults);
}

static PyObject *clear_cache(PyObject *module, PyObject *loaded)
{
    const int forget = PyObject_IsTrue(loaded);
    gpr_status status = GPR_OK;

    if (forget < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_cache_clear(forget);
    Py_END_ALLOW_THREADS
    return raise_unless_ok(module, status);
}

PyMethodDef glue_inspect_methods[] = {
    {"kernels", kernels, METH_NOARGS, PyDoc_STR("kernels() -> list of dicts")},
    {"find_kernel", find_kernel, METH_O, PyDoc_STR("find_kernel(name or alias) -> name")},
    {"sources", sources, METH_NOARGS, PyDoc_STR("sources() -> dict of file name -> text")},
    {"devices", devices, METH_NOARGS, PyDoc_STR("devices() -> list of dicts")},
    {"why_no_cuda", why_no_cuda, METH_NOARGS, PyDoc_STR("why_no_cuda() -> str or None")},
    {"read_ordinal", read_ordinal, METH_O, PyDoc_STR("read_ordinal(device) -> int or None")},
    {"cuda_versions", cuda_versions, METH_NOARGS, PyDoc_STR("cuda_versions() -> (driver, nvrtc)")},
    {"cpu_isa", cpu_isa, METH_NOARGS, PyDoc_STR("cpu_isa() -> str")},
    {"set_cpu_isa", set_cpu_isa, METH_O, PyDoc_STR("set_cpu_isa(name or None)")},
    {"set_nvrtc_path", set_nvrtc_path, METH_O, PyDoc_STR("set_nvrtc_path(path or None)")},
    {"set_cccl_path", set_cccl_path, METH_O, PyDoc_STR("set_cccl_path(directory or None)")},
    {"last_run", last_run, METH_NOARGS, PyDoc_STR("last_run() -> dict or None")},
    {"forget_run", forget_run, METH_NOARGS, PyDoc_STR("forget_run(): last_run() is None then")},
    {"limits", limits, METH_NOARGS, PyDoc_STR("limits() -> dict")},
    {"set_limits", (PyCFunction)(void (*)(void))set_limits, METH_FASTCALL,
     PyDoc_STR("set_limits(device_bytes, pinned_bytes, cpu_threads); None keeps one")},
    {"cache_info", cache_info, METH_NOARGS, PyDoc_STR("cache_info() -> dict")},
    {"clear_cache", clear_cache, METH_O, PyDoc_STR("clear_cache(loaded)")},
    {NULL, NULL, 0, NULL},
};
