/* gpureduce._core: the extension module. Its functions take positional arguments only and check what the C library
 * cannot; the Python package wraps them. Importing it opens no driver. */
#define GLUE_IMPORTS_NUMPY
#include "python/device_array.h"

static PyMethodDef reduce_methods[] = {
    {"reduce", (PyCFunction)(void (*)(void))glue_reduce, METH_FASTCALL,
     PyDoc_STR(
         "reduce(op, array, axis, dtype, keepdims, mask, kernel, device, block_size, grid_size, stream, skip_nan, "
         "ddof, /)")},
    {"reduce_plain", (PyCFunction)(void (*)(void))glue_reduce_plain, METH_FASTCALL,
     PyDoc_STR(
         "reduce_plain(op, a, axis, dtype, keepdims, out, kernel, device, block_size, grid_size, stream, skip_nan, "
         "ddof, /)")},
    {"dot", (PyCFunction)(void (*)(void))glue_dot, METH_FASTCALL,
     PyDoc_STR("dot(a, b, factor, dtype, kernel, device, block_size, grid_size, stream, /)")},
    {NULL, NULL, 0, NULL},
};

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
        failed = number == NULL || PyDict_SetItemString(operators, gpr_operator_name((gpr_operator)i), number) < 0;
        Py_XDECREF(number);
    }
    if (!failed) failed = PyModule_AddObjectRef(module, "OPERATORS", operators) < 0;
    Py_XDECREF(operators);
    return failed ? -1 : 0;
}

static int add_dtypes(PyObject *module)
{
    PyObject *names = PyTuple_New(GPR_DTYPE_COUNT);
    int failed = names == NULL;

    for (int i = 0; i < GPR_DTYPE_COUNT && !failed; i++) {
        PyObject *name = PyUnicode_FromString(gpr_dtype_name((gpr_dtype)i));
        failed = name == NULL;
        if (!failed) PyTuple_SET_ITEM(names, i, name);
    }
    if (!failed) failed = PyModule_AddObjectRef(module, "DTYPES", names) < 0;
    Py_XDECREF(names);
    return failed ? -1 : 0;
}

/* KERNEL_FILES: kernel -> the file of its source, in the order of the course. */
static int add_kernel_files(PyObject *module)
{
    PyObject *files = PyDict_New();
    int failed = files == NULL;

    for (int i = 0; i < gpr_kernel_count() && !failed; i++) {
        gpr_kernel_info info;
        PyObject *file = gpr_kernel_info_at(i, &info) == GPR_OK ? PyUnicode_FromString(info.file) : NULL;
        failed = file == NULL || PyDict_SetItemString(files, info.name, file) < 0;
        Py_XDECREF(file);
    }
    if (!failed) failed = PyModule_AddObjectRef(module, "KERNEL_FILES", files) < 0;
    Py_XDECREF(files);
    return failed ? -1 : 0;
}

/* KERNELS_ON_CPU: those that the CPU backend answers for too, in the order of the course. */
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

    if (PyArray_ImportNumPyAPI() < 0) return -1;
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        *needed[i].place = import_attribute(needed[i].module, needed[i].name);
        if (*needed[i].place == NULL) return -1;
    }
    if (PyModule_AddFunctions(module, glue_inspect_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, glue_memory_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, glue_exact_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, glue_import_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, glue_device_methods) < 0) return -1;
    if (PyModule_AddFunctions(module, glue_library_methods) < 0) return -1;
    if (glue_add_device_array(module) < 0 || glue_add_names(state) < 0) return -1;
    if (PyModule_AddStringConstant(module, "__version__", gpr_version()) < 0) return -1;
    if (add_operators(module) < 0 || add_kernel_files(module) < 0 || add_kernels_on_cpu(module) < 0) return -1;
    return add_dtypes(module);
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
    Py_CLEAR(state->exchange_attribute);
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
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* NumPy's table is process-wide */
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
    .m_methods = reduce_methods,
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
