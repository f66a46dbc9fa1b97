/* Memory that the device may still read though the caller is done with it.
 *
 * A producer that cannot make its stream wait for ours gets its memory back only when the device
 * has passed a mark on that stream. Every new loan releases earlier ones that have ended, and the
 * end of the process waits for the rest.
 *
 * The loans are a list that threads take as a whole and put back: a thread that holds a loan is its
 * only holder, and ends it without any lock, because releasing the memory runs the producer's
 * code. */
#include "python/device_buffer.h"

typedef struct glue_loan {
    struct glue_loan *next;
    gpr_mark *mark; /* on the stream, behind the work that reads the memory */
    PyObject *lent;
} glue_loan;

/* Puts a list of loans, which may be empty, before those that are there. */
static void put_back(glue_state *state, glue_loan *first)
{
    glue_loan *last = first;

    if (first == NULL) return;
    while (last->next != NULL) last = last->next;
    last->next = atomic_load(&state->loans);
    while (!atomic_compare_exchange_weak(&state->loans, &last->next, first)) continue;
}

static void end_loan(glue_loan *loan)
{
    gpr_mark_destroy(loan->mark);
    Py_DECREF(loan->lent);
    free(loan);
}

/* Ends the loans whose mark the device has passed. A mark that cannot be queried keeps its
 * loan. */
static gpr_status end_passed_loans(glue_state *state)
{
    glue_loan *pending = NULL, *passed = NULL, *next = NULL;
    gpr_status failure = GPR_OK;

    Py_BEGIN_ALLOW_THREADS
    for (glue_loan *loan = atomic_exchange(&state->loans, NULL); loan != NULL; loan = next) {
        int is_passed = 0;
        const gpr_status status = gpr_mark_passed(loan->mark, &is_passed);
        glue_loan **list = status == GPR_OK && is_passed ? &passed : &pending;

        if (status != GPR_OK) failure = status;
        next = loan->next;
        loan->next = *list;
        *list = loan;
    }
    put_back(state, pending);
    Py_END_ALLOW_THREADS
    for (; passed != NULL; passed = next) {
        next = passed->next;
        end_loan(passed);
    }
    return failure;
}

/* Has the end of the process wait for loans. It comes before the end of libraries that were
 * imported before now. */
static int register_end(glue_state *state)
{
    PyObject *core = NULL, *end = NULL, *module = NULL, *result = NULL;

    if (atomic_exchange(&state->ends_loans, 1)) return 0;
    core = PyImport_ImportModule("gpureduce._core");
    end = core != NULL ? PyObject_GetAttrString(core, "end_loans") : NULL;
    module = end != NULL ? PyImport_ImportModule("atexit") : NULL;
    result = module != NULL ? PyObject_CallMethod(module, "register", "O", end) : NULL;
    Py_XDECREF(core);
    Py_XDECREF(end);
    Py_XDECREF(module);
    Py_XDECREF(result);
    if (result == NULL) atomic_store(&state->ends_loans, 0); /* the next loan tries again */
    return result != NULL ? 0 : -1;
}

int glue_keep_loan(glue_state *state, int device, void *stream, PyObject *lent)
{
    gpr_mark *mark = NULL;
    glue_loan *loan = NULL;
    gpr_status status = GPR_OK;

    if (register_end(state) < 0) return -1;
    status = end_passed_loans(state);
    if (status == GPR_OK) {
        Py_BEGIN_ALLOW_THREADS
        status = gpr_mark_stream(device, stream, &mark);
        Py_END_ALLOW_THREADS
    }
    if (status != GPR_OK) {
        (void)glue_raise(state);
        return -1;
    }
    loan = malloc(sizeof *loan);
    if (loan == NULL) {
        gpr_mark_destroy(mark);
        (void)PyErr_NoMemory();
        return -1;
    }
    *loan = (glue_loan){.mark = mark, .lent = Py_NewRef(lent)};
    put_back(state, loan);
    return 0;
}

/* keep_loan(device, stream, lent) */
static PyObject *keep_loan(PyObject *module, PyObject *arguments)
{
    glue_state *state = glue_state_of(module);
    PyObject *handle = NULL, *lent = NULL;
    void *stream = NULL;
    int device = 0;

    if (!PyArg_ParseTuple(arguments, "iOO", &device, &handle, &lent)) return NULL;
    if (glue_read_stream(state, handle, &stream) < 0) return NULL;
    if (glue_keep_loan(state, device, stream, lent) < 0) return NULL;
    Py_RETURN_NONE;
}

/* end_loans(): waits until the device is done with every loan, and ends them all */
static PyObject *end_loans(PyObject *module, PyObject *nothing)
{
    glue_state *state = glue_state_of(module);
    glue_loan *next = NULL;
    gpr_status status = GPR_OK;

    (void)nothing;
    for (glue_loan *loan = atomic_exchange(&state->loans, NULL); loan != NULL; loan = next) {
        next = loan->next;
        Py_BEGIN_ALLOW_THREADS
        status = gpr_mark_wait(loan->mark);
        Py_END_ALLOW_THREADS
        if (status != GPR_OK) {
            put_back(state, loan);
            return glue_raise(state);
        }
        end_loan(loan);
    }
    Py_RETURN_NONE;
}

PyMethodDef glue_loan_methods[] = {
    {"keep_loan", keep_loan, METH_VARARGS, PyDoc_STR("keep_loan(device, stream, lent)")},
    {"end_loans", end_loans, METH_NOARGS, PyDoc_STR("end_loans()")},
    {NULL, NULL, 0, NULL},
};
