/* gpureduce._core: the extension module. Its functions take positional arguments only and check
 * Python objects, which the C library cannot; the Python package wraps them. Importing it opens no
 * driver. */
#include "python/device_reduce.h"
#include "python/libraries.h"

static PyObject *import_attribute(const char *module_name, const char *name)
{
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *attribute = module != NULL ? PyObject_GetAttrString(module, name) : NULL;

    Py_XDECREF(module);
    return attribute;
}

/* OPERATORS: name -> number, in the registry's order. */
static int add_operators(PyObject *module)
{
    PyObject *operators = PyDict_New();
    int failed = operators == NULL;

    for (int i = 0; i < GPR_OP_COUNT && !failed; i++) {
        PyObject *number = PyLong_FromLong(i);
        failed = number == NULL ||
                 PyDict_SetItemString(operators, gpr_operator_name((gpr_operator)i), number) < 0;
        Py_XDECREF(number);
    }
    if (!failed) failed = PyModule_AddObjectRef(module, "OPERATORS", operators) < 0;
    Py_XDECREF(operators);
    return failed ? -1 : 0;
}

/* KERNEL_FILES: kernel -> the file of its source, in the order of the course. */
static int add_kernel_files(PyObject *module)
{
    PyObject *files = PyDict_New();
    int failed = files == NULL;

    for (int i = 0; i < gpr_kernel_count() && !failed; i++) {
        gpr_kernel_info info;
        PyObject *file =
            gpr_kernel_info_at(i, &info) == GPR_OK ? PyUnicode_FromString(info.file) : NULL;
        failed = file == NULL || PyDict_SetItemString(files, info.name, file) < 0;
        Py_XDECREF(file);
    }
    if (!failed) failed = PyModule_AddObjectRef(module, "KERNEL_FILES", files) < 0;
    Py_XDECREF(files);
    return failed ? -1 : 0;
}

/* KERNELS_ON_CPU: those that the CPU backend has, too, in the order of the course. */
static int add_kernels_on_cpu(PyObject *module)
{
    PyObject *names = PyList_New(0), *fixed = NULL;
    int failed = names == NULL;

    for (int i = 0; i < gpr_kernel_count() && !failed; i++) {
        gpr_kernel_info info;
        PyObject *name = NULL;

        failed = gpr_kernel_info_at(i, &info) != GPR_OK;
        if (failed || !info.is_on_cpu) continue;
        name = PyUnicode_FromString(info.name);
        failed = name == NULL || PyList_Append(names, name) < 0;
        Py_XDECREF(name);
    }
    if (!failed) fixed = PyList_AsTuple(names);
    failed = fixed == NULL || PyModule_AddObjectRef(module, "KERNELS_ON_CPU", fixed) < 0;
    Py_XDECREF(names);
    Py_XDECREF(fixed);
    return failed ? -1 : 0;
}

static int add_names(glue_state *state)
{
    static const char *const names[GLUE_NAME_COUNT] = {
#define GLUE_NAME(name) #name,
        GLUE_NAMES(GLUE_NAME)
#undef GLUE_NAME
    };
    PyObject **const in_state = state->names;

    for (int i = 0; i < GLUE_NAME_COUNT; i++) {
        in_state[i] = PyUnicode_InternFromString(names[i]);
        if (in_state[i] == NULL) return -1;
    }
    state->dtype_keyword = PyTuple_Pack(1, in_state[GLUE_NAME_dtype]);
    state->stream_keyword = PyTuple_Pack(1, in_state[GLUE_NAME_stream]);
    state->stream_and_version_keywords =
        PyTuple_Pack(2, in_state[GLUE_NAME_stream], in_state[GLUE_NAME_max_version]);
    state->kernels = PyDict_New();
    if (gpr_find_kernel("fast", &state->fast) != GPR_OK) return -1;
    return state->dtype_keyword != NULL && state->stream_keyword != NULL &&
                   state->stream_and_version_keywords != NULL && state->kernels != NULL
               ? 0
               : -1;
}

static int core_exec(PyObject *module)
{
    glue_state *state = glue_state_of(module);
    const struct {
        const char *module, *name;
        PyObject **place;
    } needed[] = {
        {"gpureduce._exceptions", "CudaError", &state->cuda_error},
        {"gpureduce._exceptions", "DeviceUnavailableError", &state->device_unavailable_error},
        {"gpureduce._exceptions", "KernelUnavailableError", &state->kernel_unavailable_error},
        {"gpureduce._exceptions", "NoDeviceWarning", &state->no_device_warning},
        {"numpy.exceptions", "AxisError", &state->axis_error},
    };
    PyMethodDef *const methods[] = {
        glue_run_methods,           glue_host_reduce_methods, glue_dot_methods,
        glue_inspect_methods,       glue_memory_methods,      glue_exact_methods,
        glue_interface_methods,     glue_dlpack_methods,      glue_device_array_methods,
        glue_buffer_methods,        glue_stream_methods,      glue_loan_methods,
        glue_device_reduce_methods, glue_library_methods,     glue_cost_methods,
        glue_dtype_methods,         glue_text_methods,        glue_exp_sums_methods,
        glue_several_methods,       glue_norm_methods,
    };

    if (glue_import_numpy() < 0) return -1;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        *needed[i].place = import_attribute(needed[i].module, needed[i].name);
        if (*needed[i].place == NULL) return -1;
    }
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (PyModule_AddFunctions(module, methods[i]) < 0) return -1;
    }
    if (add_names(state) < 0 || glue_add_device_array(module) < 0) return -1;
    if (glue_add_device_buffer(module) < 0 || glue_add_library_type(module) < 0) return -1;
    if (glue_add_function_type(module) < 0) return -1;
    if (PyModule_AddIntConstant(module, "LEGACY_STREAM", GLUE_LEGACY_STREAM) < 0) return -1;
    if (PyModule_AddIntConstant(module, "MOST_SEVERAL", GPR_MOST_SEVERAL) < 0) return -1;
    if (PyModule_AddStringConstant(module, "__version__", gpr_version()) < 0) return -1;
    if (add_operators(module) < 0 || add_kernel_files(module) < 0 || add_kernels_on_cpu(module) < 0)
        return -1;
    if (glue_add_cost_names(module) < 0) return -1;
    return glue_add_dtypes(module);
}

static int core_traverse(PyObject *module, visitproc visit, void *arg)
{
    const glue_state *state = glue_state_of(module);

    Py_VISIT(state->cuda_error);
    Py_VISIT(state->device_unavailable_error);
    Py_VISIT(state->kernel_unavailable_error);
    Py_VISIT(state->no_device_warning);
    Py_VISIT(state->axis_error);
    Py_VISIT(state->device_array_type);
    Py_VISIT(state->device_buffer_type);
    Py_VISIT(state->library_type);
    return glue_visit_libraries(state, visit, arg);
}

static int core_clear(PyObject *module)
{
    glue_state *state = glue_state_of(module);

    Py_CLEAR(state->cuda_error);
    Py_CLEAR(state->device_unavailable_error);
    Py_CLEAR(state->kernel_unavailable_error);
    Py_CLEAR(state->no_device_warning);
    Py_CLEAR(state->axis_error);
    Py_CLEAR(state->device_array_type);
    Py_CLEAR(state->device_buffer_type);
    Py_CLEAR(state->library_type);
    Py_CLEAR(state->dtype_keyword);
    Py_CLEAR(state->stream_keyword);
    Py_CLEAR(state->stream_and_version_keywords);
    Py_CLEAR(state->kernels);
    for (int i = 0; i < GLUE_NAME_COUNT; i++) Py_CLEAR(state->names[i]);
    glue_clear_libraries(state);
    return 0;
}

static void core_free(void *module)
{
    (void)core_clear(module);
}

static PyModuleDef_Slot core_slots[] = {
    {Py_mod_exec, (void *)core_exec},
#ifdef Py_mod_multiple_interpreters
    /* NumPy's table is process-wide */
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef core_module = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "gpureduce._core",
    .m_doc = PyDoc_STR("C core of gpureduce."),
    .m_size = sizeof(glue_state),
    .m_slots = core_slots,
    .m_traverse = core_traverse,
    .m_clear = core_clear,
    .m_free = core_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&core_module);
}
