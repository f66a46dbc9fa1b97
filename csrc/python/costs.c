/* Costs of plans and facts of GPUs, as Python passes them: tuples of numbers, in the order of
 * gpr_plan_costs and gpr_device_facts. PLAN_COSTS has the names of the costs. */
#include "python/glue.h"

/* (bytes_per_ns, sm_bytes_per_ns, ...) */
static PyObject *tuple_of_costs(const gpr_plan_costs *costs)
{
    double values[GPR_PLAN_COST_COUNT];

    memcpy(values, costs, sizeof values);
    return glue_new_tuple(GPR_PLAN_COST_COUNT, glue_make_float, values);
}

static int read_costs(PyObject *object, gpr_plan_costs *costs)
{
    double values[GPR_PLAN_COST_COUNT];

    if (!PyTuple_Check(object) || PyTuple_GET_SIZE(object) != GPR_PLAN_COST_COUNT) {
        PyErr_Format(PyExc_TypeError, "costs are a tuple of %d numbers", (int)GPR_PLAN_COST_COUNT);
        return -1;
    }
    for (int i = 0; i < GPR_PLAN_COST_COUNT; i++) {
        values[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(object, i));
        if (values[i] == -1 && PyErr_Occurred() != NULL) return -1;
    }
    memcpy(costs, values, sizeof values);
    return 0;
}

int glue_read_facts(PyObject *object, gpr_device_facts *facts)
{
    PyObject *costs = NULL;

    *facts = (gpr_device_facts){0};
    if (!PyTuple_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "facts of a GPU are a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(object, "iIIpdO", &facts->cc, &facts->multiprocessors,
                          &facts->threads_per_multiprocessor, &facts->slow_float64,
                          &facts->memory_bytes_per_ns, &costs))
        return -1;
    if (facts->multiprocessors == 0 || facts->threads_per_multiprocessor == 0) {
        PyErr_SetString(PyExc_ValueError, "a GPU has multiprocessors, and threads on each");
        return -1;
    }
    return read_costs(costs, &facts->costs);
}

static PyObject *tuple_of_facts(const gpr_device_facts *facts)
{
    PyObject *costs = tuple_of_costs(&facts->costs);

    if (costs == NULL) return NULL;
    return Py_BuildValue("(iIINdN)", facts->cc, facts->multiprocessors,
                         facts->threads_per_multiprocessor, PyBool_FromLong(facts->slow_float64),
                         facts->memory_bytes_per_ns, costs);
}

static PyObject *device_facts(PyObject *module, PyObject *number)
{
    const int device = (int)PyLong_AsLong(number);
    gpr_device_facts facts;
    gpr_status status = GPR_OK;

    if (device == -1 && PyErr_Occurred() != NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_facts_at(device, &facts);
    Py_END_ALLOW_THREADS
    return status == GPR_OK ? tuple_of_facts(&facts) : glue_raise(glue_state_of(module));
}

static PyObject *typical_facts(PyObject *module, PyObject *capability)
{
    const int cc = (int)PyLong_AsLong(capability);
    gpr_device_facts facts;

    if (cc == -1 && PyErr_Occurred() != NULL) return NULL;
    if (gpr_typical_facts(cc, &facts) != GPR_OK) return glue_raise(glue_state_of(module));
    return tuple_of_facts(&facts);
}

static PyObject *plan_costs(PyObject *module, PyObject *number)
{
    const int device = (int)PyLong_AsLong(number);
    gpr_costs_info info;
    gpr_status status = GPR_OK;

    if (device == -1 && PyErr_Occurred() != NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = gpr_costs_at(device, &info);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    return Py_BuildValue("{sN sN sN ss}", "costs", tuple_of_costs(&info.costs), "is_measured",
                         PyBool_FromLong(info.is_measured), "path",
                         PyUnicode_DecodeFSDefault(info.path), "reason", info.reason);
}

/* (device, costs or None), for a function that takes them. */
static PyObject *give_costs(PyObject *module, PyObject *arguments,
                            gpr_status (*give)(int, const gpr_plan_costs *))
{
    PyObject *given = NULL;
    gpr_plan_costs costs;
    gpr_status status = GPR_OK;
    int device = 0;

    if (!PyArg_ParseTuple(arguments, "iO", &device, &given)) return NULL;
    if (given != Py_None && read_costs(given, &costs) < 0) return NULL;
    if (glue_locate(glue_state_of(module), 0) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = give(device, given != Py_None ? &costs : NULL);
    Py_END_ALLOW_THREADS
    if (status != GPR_OK) return glue_raise(glue_state_of(module));
    Py_RETURN_NONE;
}

static PyObject *store_costs(PyObject *module, PyObject *arguments)
{
    return give_costs(module, arguments, gpr_store_costs);
}

static PyObject *use_costs(PyObject *module, PyObject *arguments)
{
    return give_costs(module, arguments, gpr_use_costs);
}

static PyObject *make_cost_name(const void *unused, Py_ssize_t i)
{
    (void)unused;
    return PyUnicode_FromString(gpr_plan_cost_name((int)i));
}

int glue_add_cost_names(PyObject *module)
{
    PyObject *names = glue_new_tuple(GPR_PLAN_COST_COUNT, make_cost_name, NULL);
    const int failed = names == NULL || PyModule_AddObjectRef(module, "PLAN_COSTS", names) < 0;

    Py_XDECREF(names);
    return failed ? -1 : 0;
}

PyMethodDef glue_cost_methods[] = {
    {"device_facts", device_facts, METH_O, PyDoc_STR("device_facts(device) -> tuple")},
    {"typical_facts", typical_facts, METH_O,
     PyDoc_STR("typical_facts(10 * major + minor) -> tuple, of a GPU of that capability")},
    {"plan_costs", plan_costs, METH_O, PyDoc_STR("plan_costs(device) -> dict")},
    {"store_costs", store_costs, METH_VARARGS, PyDoc_STR("store_costs(device, costs or None)")},
    {"use_costs", use_costs, METH_VARARGS, PyDoc_STR("use_costs(device, costs or None)")},
    {NULL, NULL, 0, NULL},
};
