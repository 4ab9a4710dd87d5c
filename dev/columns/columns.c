/* Lets records cross between librdkafka and Python in batches, on the clients of confluent-kafka.
 *
 * Nothing is linked: bind() takes the addresses of librdkafka's functions, those of the very library that
 * confluent-kafka has loaded. A client's handle is read at its object's address plus the size of `object`, where
 * confluent-kafka keeps it; looks_right() tries that in a child process first, since a wrong address crashes.
 *
 * Queue takes what was fetched. Partitions are forwarded to it, so that it holds messages and nothing else: a
 * client's callbacks (errors, statistics, logs) need the client's own poll(), and would crash here. It must be
 * closed before the consumer is: an open queue keeps a consumer from closing.
 *
 * Sender sends one record a call. Whatever is unusual about a record (an argument of another type, a time that its
 * topic may refuse) and whatever the client refuses goes to the fall-back, confluent-kafka's own way, which raises
 * the errors. Its messages have no opaque, so the client's delivery callback passes them over: a failed
 * transaction is the only sign that one was refused.
 *
 * columns() makes Arrow's columns of records, for nodes that take many records at once.
 *
 * Only the stable ABI of Python 3.11 is used. Every function that fails half-way frees what it holds.
 */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- librdkafka's public interface, as of rdkafka.h ---- */

typedef struct {
    int err;
    void *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *_private;
} Message;

/* What the main package asks for; a change of what this module offers changes it. */
enum { INTERFACE = 2 };

enum { NO_ERROR = 0 };
enum { CLIENT_PRODUCER = 0, CLIENT_CONSUMER = 1 };
/* rd_kafka_vtype_t */
enum { V_END = 0, V_TOPIC, V_RKT, V_PARTITION, V_VALUE, V_KEY, V_OPAQUE, V_MSGFLAGS, V_TIMESTAMP, V_HEADER, V_HEADERS };
enum { F_COPY = 0x2 };

static struct {
    int (*type)(const void *);
    const char *(*name)(const void *);
    void *(*queue_new)(void *);
    void (*queue_destroy)(void *);
    void *(*queue_get_partition)(void *, const char *, int32_t);
    void (*queue_forward)(void *, void *);
    ssize_t (*consume_batch_queue)(void *, int, Message **, size_t);
    void (*message_destroy)(Message *);
    int64_t (*message_timestamp)(const Message *, int *);
    int (*message_detach_headers)(Message *, void **);
    int32_t (*message_leader_epoch)(const Message *);
    const char *(*message_errstr)(const Message *);
    const char *(*topic_name)(const void *);
    void *(*headers_new)(size_t);
    void (*headers_destroy)(void *);
    int (*header_add)(void *, const char *, ssize_t, const void *, ssize_t);
    int (*header_get_all)(const void *, size_t, const char **, const void **, size_t *);
    void *(*topic_new)(void *, const char *, void *);
    void (*topic_destroy)(void *);
    int (*producev)(void *, ...);
} rd;

/* In the order of the struct above. */
static const char *const FUNCTIONS[] = {
    "rd_kafka_type",
    "rd_kafka_name",
    "rd_kafka_queue_new",
    "rd_kafka_queue_destroy",
    "rd_kafka_queue_get_partition",
    "rd_kafka_queue_forward",
    "rd_kafka_consume_batch_queue",
    "rd_kafka_message_destroy",
    "rd_kafka_message_timestamp",
    "rd_kafka_message_detach_headers",
    "rd_kafka_message_leader_epoch",
    "rd_kafka_message_errstr",
    "rd_kafka_topic_name",
    "rd_kafka_headers_new",
    "rd_kafka_headers_destroy",
    "rd_kafka_header_add",
    "rd_kafka_header_get_all",
    "rd_kafka_topic_new",
    "rd_kafka_topic_destroy",
    "rd_kafka_producev",
};
#define FUNCTION_COUNT (sizeof(FUNCTIONS) / sizeof(*FUNCTIONS))

static int bound = 0;
static Py_ssize_t header_bytes = 0; /* size of `object`: where a client keeps its handle */

static PyTypeObject *record_type, *place_type;

static void *handle_of(PyObject *client) { return *(void **)((char *)client + header_bytes); }

static PyObject *bytes_or_none(const void *data, size_t size) {
    if (data == NULL)
        Py_RETURN_NONE;
    return PyBytes_FromStringAndSize(data, (Py_ssize_t)size);
}

/* ---- a partition, shared by the records of a batch ---- */

typedef struct {
    PyObject_HEAD
    PyObject *topic;
    int32_t partition;
} Place;

static void place_dealloc(Place *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF(self->topic);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot place_slots[] = {{Py_tp_dealloc, place_dealloc}, {0, NULL}};
static PyType_Spec place_spec = {
    "airflow_kstreams_columns.Place", sizeof(Place), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, place_slots};

/* ---- Record: the methods of confluent_kafka.Message that a consumed record has ---- */

typedef struct {
    PyObject_HEAD
    Place *place;
    PyObject *key;
    PyObject *value;
    PyObject *headers; /* NULL until they are asked for */
    void *unread_headers;
    int64_t offset;
    int64_t timestamp_ms;
    int32_t leader_epoch;
    int timestamp_type;
} Record;

static void record_dealloc(Record *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF((PyObject *)self->place);
    Py_XDECREF(self->key);
    Py_XDECREF(self->value);
    Py_XDECREF(self->headers);
    if (self->unread_headers != NULL)
        rd.headers_destroy(self->unread_headers);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *record_topic(Record *self, PyObject *unused) { return Py_NewRef(self->place->topic); }
static PyObject *record_partition(Record *self, PyObject *unused) { return PyLong_FromLong(self->place->partition); }
static PyObject *record_offset(Record *self, PyObject *unused) { return PyLong_FromLongLong(self->offset); }
static PyObject *record_key(Record *self, PyObject *unused) { return Py_NewRef(self->key); }
static PyObject *record_value(Record *self, PyObject *unused) { return Py_NewRef(self->value); }

static PyObject *record_timestamp(Record *self, PyObject *unused) {
    return Py_BuildValue("iL", self->timestamp_type, (long long)self->timestamp_ms);
}

static PyObject *record_leader_epoch(Record *self, PyObject *unused) {
    if (self->leader_epoch < 0)
        Py_RETURN_NONE;
    return PyLong_FromLong(self->leader_epoch);
}

static PyObject *record_headers(Record *self, PyObject *unused) {
    const char *name;
    const void *data;
    size_t size;
    if (self->headers == NULL && self->unread_headers == NULL)
        Py_RETURN_NONE;
    if (self->headers == NULL) {
        PyObject *list = PyList_New(0);
        if (list == NULL)
            return NULL;
        for (size_t index = 0; rd.header_get_all(self->unread_headers, index, &name, &data, &size) == NO_ERROR; index++) {
            PyObject *held = bytes_or_none(data, size);
            PyObject *pair = held == NULL ? NULL : Py_BuildValue("sO", name, held);
            int failed = pair == NULL || PyList_Append(list, pair) < 0;
            Py_XDECREF(held);
            Py_XDECREF(pair);
            if (failed) {
                Py_DECREF(list);
                return NULL;
            }
        }
        self->headers = list;
        rd.headers_destroy(self->unread_headers);
        self->unread_headers = NULL;
    }
    return Py_NewRef(self->headers);
}

static PyMethodDef record_methods[] = {
    {"topic", (PyCFunction)record_topic, METH_NOARGS, "Return the topic's name."},
    {"partition", (PyCFunction)record_partition, METH_NOARGS, "Return the partition's number."},
    {"offset", (PyCFunction)record_offset, METH_NOARGS, "Return the offset."},
    {"key", (PyCFunction)record_key, METH_NOARGS, "Return the key."},
    {"value", (PyCFunction)record_value, METH_NOARGS, "Return the value."},
    {"timestamp", (PyCFunction)record_timestamp, METH_NOARGS,
     "Return the timestamp's type, and the timestamp in epoch milliseconds."},
    {"headers", (PyCFunction)record_headers, METH_NOARGS, "Return the headers, None if there are none."},
    {"leader_epoch", (PyCFunction)record_leader_epoch, METH_NOARGS,
     "Return the leader epoch under which the record was written, None if the broker does not give it."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot record_slots[] = {
    {Py_tp_dealloc, record_dealloc}, {Py_tp_methods, record_methods}, {0, NULL}};
static PyType_Spec record_spec = {
    "airflow_kstreams_columns.Record", sizeof(Record), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, record_slots};

static Record *record_of(Message *message, Place *place) {
    PyObject *key = bytes_or_none(message->key, message->key_len);
    PyObject *value = key == NULL ? NULL : bytes_or_none(message->payload, message->len);
    Record *record = value == NULL ? NULL : PyObject_New(Record, record_type);
    if (record == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(value);
        return NULL;
    }
    record->place = (Place *)Py_NewRef((PyObject *)place);
    record->key = key;
    record->value = value;
    record->headers = NULL;
    record->unread_headers = NULL;
    record->offset = message->offset;
    record->timestamp_ms = rd.message_timestamp(message, &record->timestamp_type);
    record->leader_epoch = rd.message_leader_epoch(message);
    if (rd.message_detach_headers(message, &record->unread_headers) != NO_ERROR)
        record->unread_headers = NULL;
    return record;
}

/* ---- the batch that one call takes: its records by partition ---- */

typedef struct {
    void *rkt;
    int32_t partition;
    Place *place;
    PyObject *records;
    PyObject *timestamps;
    int64_t last_ms;
    PyObject *last_time; /* borrowed from the list */
} Group;

typedef struct {
    Group *groups;
    size_t count;
    size_t room;
    size_t *slots; /* index of a group plus 1; 0 for none */
    size_t mask;
} Batch;

static void batch_free(Batch *batch) {
    for (size_t i = 0; i < batch->count; i++) {
        Py_XDECREF((PyObject *)batch->groups[i].place);
        Py_XDECREF(batch->groups[i].records);
        Py_XDECREF(batch->groups[i].timestamps);
    }
    free(batch->groups);
    free(batch->slots);
    memset(batch, 0, sizeof(*batch));
}

static size_t slot_of(const Batch *batch, const void *rkt, int32_t partition) {
    uint64_t hash = ((uint64_t)(uintptr_t)rkt >> 4) ^ ((uint64_t)(uint32_t)partition * 0x9E3779B97F4A7C15u);
    size_t slot = (size_t)(hash ^ (hash >> 29)) & batch->mask;
    for (; batch->slots[slot] != 0; slot = (slot + 1) & batch->mask) {
        const Group *group = &batch->groups[batch->slots[slot] - 1];
        if (group->rkt == rkt && group->partition == partition)
            break;
    }
    return slot;
}

static int batch_grow(Batch *batch) {
    size_t room = batch->room == 0 ? 8 : batch->room * 2;
    Group *groups = realloc(batch->groups, room * sizeof(Group));
    if (groups == NULL)
        return -1;
    batch->groups = groups;
    size_t *slots = calloc(room * 2, sizeof(size_t));
    if (slots == NULL)
        return -1;
    free(batch->slots);
    batch->slots = slots;
    batch->room = room;
    batch->mask = room * 2 - 1;
    for (size_t i = 0; i < batch->count; i++)
        batch->slots[slot_of(batch, groups[i].rkt, groups[i].partition)] = i + 1;
    return 0;
}

static Group *group_of(Batch *batch, const Message *message) {
    if (batch->count == batch->room && batch_grow(batch) < 0) {
        PyErr_NoMemory();
        return NULL;
    }
    size_t slot = slot_of(batch, message->rkt, message->partition);
    if (batch->slots[slot] != 0)
        return &batch->groups[batch->slots[slot] - 1];
    Group *group = &batch->groups[batch->count];
    memset(group, 0, sizeof(*group));
    group->rkt = message->rkt;
    group->partition = message->partition;
    batch->slots[slot] = ++batch->count; /* from here on batch_free() frees it */
    group->place = PyObject_New(Place, place_type);
    if (group->place == NULL)
        return NULL;
    group->place->partition = message->partition;
    group->place->topic = PyUnicode_FromString(rd.topic_name(message->rkt));
    group->records = PyList_New(0);
    group->timestamps = PyList_New(0);
    if (group->place->topic == NULL || group->records == NULL || group->timestamps == NULL)
        return NULL;
    return group;
}

static int group_add(Group *group, Message *message) {
    Record *record = record_of(message, group->place);
    if (record == NULL)
        return -1;
    int failed = PyList_Append(group->records, (PyObject *)record) < 0;
    Py_DECREF(record);
    if (failed)
        return -1;
    /* Neighbours often share a time, and then its object. */
    PyObject *time_ms = group->last_time;
    if (time_ms != NULL && group->last_ms == record->timestamp_ms) {
        Py_INCREF(time_ms);
    } else {
        time_ms = PyLong_FromLongLong(record->timestamp_ms);
        if (time_ms == NULL)
            return -1;
    }
    group->last_time = time_ms;
    group->last_ms = record->timestamp_ms;
    failed = PyList_Append(group->timestamps, time_ms) < 0;
    Py_DECREF(time_ms);
    return failed ? -1 : 0;
}

static PyObject *batch_groups(const Batch *batch) {
    PyObject *groups = PyList_New((Py_ssize_t)batch->count);
    if (groups == NULL)
        return NULL;
    for (size_t i = 0; i < batch->count; i++) {
        const Group *group = &batch->groups[i];
        PyObject *one = Py_BuildValue(
            "OiOO", group->place->topic, (int)group->partition, group->records, group->timestamps);
        if (one == NULL || PyList_SetItem(groups, (Py_ssize_t)i, one) < 0) {
            Py_DECREF(groups);
            return NULL;
        }
    }
    return groups;
}

/* ---- columns of records, as Arrow keeps them ---- */

static PyObject *column_of(PyObject *records, Py_ssize_t count, int of_keys) {
    PyObject *bitmap = NULL, *offsets = NULL, *data = NULL, *column = NULL;
    Py_ssize_t nulls = 0, size = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        const Record *record = (Record *)PyList_GetItem(records, i);
        PyObject *object = of_keys ? record->key : record->value;
        if (object == Py_None)
            nulls++;
        else
            size += PyBytes_Size(object);
    }
    if (size > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "the records are too large for one column");
        return NULL;
    }
    offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    data = PyBytes_FromStringAndSize(NULL, size);
    bitmap = nulls == 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(NULL, (count + 7) / 8);
    if (offsets == NULL || data == NULL || bitmap == NULL)
        goto end;
    int32_t *places = (int32_t *)PyBytes_AsString(offsets), at = 0;
    char *to = PyBytes_AsString(data);
    unsigned char *bits = nulls == 0 ? NULL : (unsigned char *)PyBytes_AsString(bitmap);
    if (bits != NULL)
        memset(bits, 0, (size_t)(count + 7) / 8);
    for (Py_ssize_t i = 0; i < count; i++) {
        const Record *record = (Record *)PyList_GetItem(records, i);
        PyObject *object = of_keys ? record->key : record->value;
        places[i] = at;
        if (object == Py_None)
            continue;
        size_t length = (size_t)PyBytes_Size(object);
        memcpy(to + at, PyBytes_AsString(object), length);
        at += (int32_t)length;
        if (bits != NULL)
            bits[i / 8] |= (unsigned char)(1u << (i % 8));
    }
    places[count] = at;
    column = Py_BuildValue("OnOO", bitmap, nulls, offsets, data);
end:
    Py_XDECREF(bitmap);
    Py_XDECREF(offsets);
    Py_XDECREF(data);
    return column;
}

static PyObject *columns(PyObject *module, PyObject *records) {
    if (!PyList_CheckExact(records)) {
        PyErr_SetString(PyExc_TypeError, "columns() takes a list of records");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(records);
    for (Py_ssize_t i = 0; i < count; i++)
        if (Py_TYPE(PyList_GetItem(records, i)) != record_type) {
            PyErr_SetString(PyExc_TypeError, "a record of another class");
            return NULL;
        }
    PyObject *keys = column_of(records, count, 1);
    PyObject *values = keys == NULL ? NULL : column_of(records, count, 0);
    PyObject *both = values == NULL ? NULL : PyTuple_Pack(2, keys, values);
    Py_XDECREF(keys);
    Py_XDECREF(values);
    return both;
}

/* ---- Queue ---- */

typedef struct {
    PyObject_HEAD
    PyObject *consumer;
    void *rk;
    void *queue; /* NULL once it is closed */
    Message **taken;
    size_t room;
    int busy;
    int broken;
} Queue;

static PyObject *not_bound(void) {
    PyErr_SetString(PyExc_RuntimeError, "call bind() first");
    return NULL;
}

static PyObject *queue_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *consumer;
    if (!bound)
        return not_bound();
    if (!PyArg_ParseTuple(args, "O", &consumer))
        return NULL;
    void *rk = handle_of(consumer);
    if (rk == NULL || rd.type(rk) != CLIENT_CONSUMER) {
        PyErr_SetString(PyExc_ValueError, "this is no open consumer");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Queue *self = (Queue *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->consumer = Py_NewRef(consumer);
    self->rk = rk;
    self->queue = rd.queue_new(rk);
    return (PyObject *)self;
}

static void queue_end(Queue *self) {
    void *queue = self->queue;
    self->queue = NULL;
    if (queue != NULL) {
        Py_BEGIN_ALLOW_THREADS
        rd.queue_destroy(queue);
        Py_END_ALLOW_THREADS
    }
}

static void queue_dealloc(Queue *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    queue_end(self);
    free(self->taken);
    Py_XDECREF(self->consumer); /* behind the queue: the client's end waits for that */
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int queue_usable(Queue *self) {
    if (self->queue == NULL || self->busy || handle_of(self->consumer) != self->rk) {
        PyErr_SetString(PyExc_RuntimeError, self->busy ? "this queue is in use" : "this queue is closed");
        return 0;
    }
    return 1;
}

static PyObject *queue_close(Queue *self, PyObject *unused) {
    if (self->busy) {
        PyErr_SetString(PyExc_RuntimeError, "this queue is in use");
        return NULL;
    }
    queue_end(self);
    Py_RETURN_NONE;
}

static PyObject *queue_forward(Queue *self, PyObject *args) {
    const char *topic;
    int partition;
    if (!PyArg_ParseTuple(args, "si", &topic, &partition) || !queue_usable(self))
        return NULL;
    void *source = rd.queue_get_partition(self->rk, topic, partition);
    if (source == NULL) {
        PyErr_Format(PyExc_ValueError, "the client has no queue of %s-%d", topic, partition);
        return NULL;
    }
    rd.queue_forward(source, self->queue);
    rd.queue_destroy(source);
    Py_RETURN_NONE;
}

static PyObject *fault_of(const Message *message) {
    const char *topic = message->rkt == NULL ? "" : rd.topic_name(message->rkt);
    return Py_BuildValue("siLis", topic, (int)message->partition, (long long)message->offset, message->err,
                         rd.message_errstr(message));
}

/* Return the messages as (records by partition, errors). */
static PyObject *queue_taken(Message **messages, size_t count) {
    Batch batch = {0};
    Group *group = NULL;
    PyObject *result = NULL, *faults = PyList_New(0);
    size_t done = 0;
    if (faults == NULL)
        goto end;
    for (; done < count; done++) {
        Message *message = messages[done];
        if (message->err != NO_ERROR) {
            PyObject *fault = fault_of(message);
            int failed = fault == NULL || PyList_Append(faults, fault) < 0;
            Py_XDECREF(fault);
            if (failed)
                goto end;
        } else {
            if (group == NULL || group->rkt != message->rkt || group->partition != message->partition)
                group = group_of(&batch, message);
            if (group == NULL || group_add(group, message) < 0)
                goto end;
        }
        rd.message_destroy(message);
    }
    PyObject *groups = batch_groups(&batch);
    if (groups != NULL) {
        result = PyTuple_Pack(2, groups, faults);
        Py_DECREF(groups);
    }
end:
    for (; done < count; done++)
        rd.message_destroy(messages[done]);
    batch_free(&batch);
    Py_XDECREF(faults);
    return result;
}

static PyObject *queue_take(Queue *self, PyObject *args) {
    Py_ssize_t most;
    int timeout_ms;
    ssize_t count;
    if (!PyArg_ParseTuple(args, "ni", &most, &timeout_ms) || !queue_usable(self))
        return NULL;
    if (self->broken) {
        PyErr_SetString(PyExc_RuntimeError, "an earlier call failed half-way, and its records are lost");
        return NULL;
    }
    if (most < 1 || most > 1000000) {
        PyErr_SetString(PyExc_ValueError, "the number of records to take lies between 1 and 1,000,000");
        return NULL;
    }
    if (self->room < (size_t)most) {
        Message **taken = realloc(self->taken, (size_t)most * sizeof(Message *));
        if (taken == NULL)
            return PyErr_NoMemory();
        self->taken = taken;
        self->room = (size_t)most;
    }
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    count = rd.consume_batch_queue(self->queue, timeout_ms, self->taken, (size_t)most);
    Py_END_ALLOW_THREADS
    PyObject *result = NULL;
    if (count < 0)
        PyErr_SetString(PyExc_RuntimeError, "the client could not read its queue");
    else
        result = queue_taken(self->taken, (size_t)count);
    self->busy = 0;
    if (result == NULL)
        self->broken = 1;
    return result;
}

static PyMethodDef queue_methods[] = {
    {"forward", (PyCFunction)queue_forward, METH_VARARGS,
     "forward(topic, partition): have a partition's messages come here. Before every assign()."},
    {"take", (PyCFunction)queue_take, METH_VARARGS,
     "take(most, timeout_ms): return ([(topic, partition, records, timestamps_ms)], [(topic, partition, offset, "
     "code, text)])."},
    {"close", (PyCFunction)queue_close, METH_NOARGS, "Close it. Before the consumer; closing twice is harmless."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot queue_slots[] = {
    {Py_tp_new, queue_new}, {Py_tp_dealloc, queue_dealloc}, {Py_tp_methods, queue_methods}, {0, NULL}};
static PyType_Spec queue_spec = {
    "airflow_kstreams_columns.Queue", sizeof(Queue), 0, Py_TPFLAGS_DEFAULT, queue_slots};

/* ---- Sender ---- */

enum { TOPICS_MOST = 64, LOOK_AGAIN = 1024 };

typedef struct {
    PyObject *name;
    void *rkt;
} Topic;

typedef struct {
    PyObject_HEAD
    PyObject *producer; /* NULL once it is released */
    PyObject *fall_back;
    PyObject *taken;
    void *rk;
    Topic topics[TOPICS_MOST];
    int topic_count;
    long long earliest_ms;
    long long latest_ms;
    unsigned beyond;
    long long sent;
} Sender;

static int sender_look(Sender *self) {
    PyObject *span = PyObject_CallNoArgs(self->taken);
    if (span == NULL)
        return -1;
    int fits = PyArg_ParseTuple(span, "LL", &self->earliest_ms, &self->latest_ms);
    Py_DECREF(span);
    return fits ? 0 : -1;
}

static PyObject *sender_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *producer, *fall_back, *taken;
    if (!bound)
        return not_bound();
    if (!PyArg_ParseTuple(args, "OOO", &producer, &fall_back, &taken))
        return NULL;
    void *rk = handle_of(producer);
    if (rk == NULL || rd.type(rk) != CLIENT_PRODUCER) {
        PyErr_SetString(PyExc_ValueError, "this is no open producer");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Sender *self = (Sender *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->producer = Py_NewRef(producer);
    self->fall_back = Py_NewRef(fall_back);
    self->taken = Py_NewRef(taken);
    self->rk = rk;
    if (sender_look(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void sender_end(Sender *self) {
    PyObject *producer = self->producer;
    int count = self->topic_count;
    self->producer = NULL;
    self->topic_count = 0;
    for (int i = 0; i < count; i++) {
        rd.topic_destroy(self->topics[i].rkt);
        Py_DECREF(self->topics[i].name);
    }
    Py_XDECREF(producer); /* behind its topics */
}

static int sender_traverse(Sender *self, visitproc visit, void *arg) {
    PyObject *type = (PyObject *)Py_TYPE((PyObject *)self);
    Py_VISIT(type);
    Py_VISIT(self->producer);
    Py_VISIT(self->fall_back);
    Py_VISIT(self->taken);
    return 0;
}

static int sender_clear(Sender *self) {
    sender_end(self);
    Py_CLEAR(self->fall_back);
    Py_CLEAR(self->taken);
    return 0;
}

static void sender_dealloc(Sender *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    sender_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *sender_release(Sender *self, PyObject *unused) {
    sender_end(self);
    Py_RETURN_NONE;
}

static PyObject *sender_fall_back(Sender *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    PyObject *given = NULL, *by_name = NULL, *result = NULL;
    if (self->fall_back == NULL)
        return PyErr_Format(PyExc_RuntimeError, "this sender is gone");
    given = PyTuple_New(count);
    if (given == NULL)
        goto end;
    for (Py_ssize_t i = 0; i < count; i++)
        PyTuple_SetItem(given, i, Py_NewRef(args[i]));
    if (named > 0) {
        by_name = PyDict_New();
        if (by_name == NULL)
            goto end;
        for (Py_ssize_t i = 0; i < named; i++)
            if (PyDict_SetItem(by_name, PyTuple_GetItem(names, i), args[count + i]) < 0)
                goto end;
    }
    result = PyObject_Call(self->fall_back, given, by_name);
end:
    Py_XDECREF(given);
    Py_XDECREF(by_name);
    return result;
}

/* Return the client's topic; NULL to use the fall-back, with or without an error set. */
static void *sender_topic(Sender *self, PyObject *name) {
    for (int i = 0; i < self->topic_count; i++)
        if (self->topics[i].name == name)
            return self->topics[i].rkt;
    if (!PyUnicode_CheckExact(name))
        return NULL;
    for (int i = 0; i < self->topic_count; i++) {
        int order = PyUnicode_Compare(self->topics[i].name, name);
        if (order == -1 && PyErr_Occurred())
            return NULL;
        if (order == 0)
            return self->topics[i].rkt;
    }
    if (self->topic_count == TOPICS_MOST)
        return NULL;
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    if (text == NULL || strlen(text) != (size_t)size)
        return NULL;
    void *rkt = rd.topic_new(self->rk, text, NULL);
    if (rkt == NULL)
        return NULL;
    self->topics[self->topic_count].name = Py_NewRef(name);
    self->topics[self->topic_count++].rkt = rkt;
    return rkt;
}

/* Set the bytes of a key or value; return 0 if it is neither bytes nor None. */
static int plain_bytes(PyObject *object, char **data, Py_ssize_t *size) {
    *data = NULL;
    *size = 0;
    if (object == Py_None)
        return 1;
    return PyBytes_CheckExact(object) && PyBytes_AsStringAndSize(object, data, size) == 0;
}

/* Return the client's headers; NULL to use the fall-back, with or without an error set. */
static void *plain_headers(PyObject *list) {
    if (!PyList_CheckExact(list))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    void *headers = rd.headers_new((size_t)count);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyList_GetItem(list, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_Size(pair) != 2)
            goto unusual;
        PyObject *name = PyTuple_GetItem(pair, 0);
        char *data;
        Py_ssize_t size, name_size;
        if (!PyUnicode_CheckExact(name) || !plain_bytes(PyTuple_GetItem(pair, 1), &data, &size))
            goto unusual;
        const char *text = PyUnicode_AsUTF8AndSize(name, &name_size);
        if (text == NULL || strlen(text) != (size_t)name_size ||
            rd.header_add(headers, text, name_size, data, size) != NO_ERROR)
            goto unusual;
    }
    return headers;
unusual:
    rd.headers_destroy(headers);
    return NULL;
}

/* produce(topic, value, key=None, partition=-1, timestamp_ms=None, headers=None) */
static PyObject *sender_produce(Sender *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    char *value, *key = NULL;
    Py_ssize_t value_size, key_size = 0;
    long partition = -1;
    long long timestamp_ms = 0;
    void *headers = NULL;
    if (names != NULL || count < 2 || count > 6 || self->producer == NULL)
        goto fall_back;
    void *rkt = sender_topic(self, args[0]);
    if (rkt == NULL || !plain_bytes(args[1], &value, &value_size))
        goto fall_back;
    if (count > 2 && !plain_bytes(args[2], &key, &key_size))
        goto fall_back;
    if (count > 3) {
        if (!PyLong_CheckExact(args[3]))
            goto fall_back;
        partition = PyLong_AsLong(args[3]);
        if (partition < -1 || partition > INT32_MAX || (partition == -1 && PyErr_Occurred()))
            goto fall_back;
    }
    if (count > 4 && args[4] != Py_None) {
        if (!PyLong_CheckExact(args[4]))
            goto fall_back;
        timestamp_ms = PyLong_AsLongLong(args[4]);
        if (timestamp_ms == -1 && PyErr_Occurred())
            goto fall_back;
        if (timestamp_ms < self->earliest_ms || timestamp_ms > self->latest_ms) {
            if (++self->beyond % LOOK_AGAIN == 0 && sender_look(self) < 0)
                return NULL;
            goto fall_back;
        }
    }
    if (count > 5 && args[5] != Py_None) {
        headers = plain_headers(args[5]);
        if (headers == NULL)
            goto fall_back;
    }
    int error = rd.producev(
        self->rk, V_MSGFLAGS, (int)F_COPY, V_RKT, rkt, V_PARTITION, (int32_t)partition, V_KEY, (void *)key,
        (size_t)key_size, V_VALUE, (void *)value, (size_t)value_size, V_TIMESTAMP, (int64_t)timestamp_ms, V_HEADERS,
        headers, V_END);
    if (error == NO_ERROR) {
        self->sent++;
        Py_RETURN_NONE;
    }
    if (headers != NULL)
        rd.headers_destroy(headers);
fall_back:
    PyErr_Clear(); /* the fall-back raises the error, if it is one */
    return sender_fall_back(self, args, count, names);
}

static PyMethodDef sender_methods[] = {
    {"produce", (PyCFunction)(void (*)(void))sender_produce, METH_FASTCALL | METH_KEYWORDS,
     "produce(topic, value, key=None, partition=-1, timestamp_ms=None, headers=None): send one record."},
    {"release", (PyCFunction)sender_release, METH_NOARGS,
     "Give the producer back, before its end; what is sent from now on goes to the fall-back."},
    {NULL, NULL, 0, NULL}};
static PyMemberDef sender_members[] = {
    {"sent", T_LONGLONG, offsetof(Sender, sent), 0, "Number of records sent without a delivery report."},
    {NULL, 0, 0, 0, NULL}};
static PyType_Slot sender_slots[] = {{Py_tp_new, sender_new},         {Py_tp_dealloc, sender_dealloc},
                                     {Py_tp_traverse, sender_traverse}, {Py_tp_clear, sender_clear},
                                     {Py_tp_methods, sender_methods},   {Py_tp_members, sender_members},
                                     {0, NULL}};
static PyType_Spec sender_spec = {
    "airflow_kstreams_columns.Sender", sizeof(Sender), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, sender_slots};

/* ---- the module ---- */

static PyObject *bind(PyObject *module, PyObject *addresses) {
    void *found[FUNCTION_COUNT];
    if (!PyTuple_Check(addresses) || PyTuple_Size(addresses) != (Py_ssize_t)FUNCTION_COUNT) {
        PyErr_Format(PyExc_ValueError, "bind() takes a tuple of %d addresses", (int)FUNCTION_COUNT);
        return NULL;
    }
    for (size_t i = 0; i < FUNCTION_COUNT; i++) {
        found[i] = PyLong_AsVoidPtr(PyTuple_GetItem(addresses, (Py_ssize_t)i));
        if (found[i] == NULL) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "%s has no address", FUNCTIONS[i]);
            return NULL;
        }
    }
    _Static_assert(sizeof(rd) == sizeof(found), "a name for each function");
    memcpy(&rd, found, sizeof(rd));
    bound = 1;
    Py_RETURN_NONE;
}

/* In the child: answer, without Python. */
static void answer(int out, const void *address, int type, const char *name) {
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE};
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        signal(signals[i], SIG_DFL);
    const void *rk = *(void *const *)address;
    if (rk != NULL && rd.type(rk) == type && strncmp(rd.name(rk), name, strlen(name)) == 0)
        (void)!write(out, "y", 1);
    _exit(0);
}

static PyObject *looks_right(PyObject *module, PyObject *args) {
    PyObject *client;
    const char *name;
    Py_ssize_t at;
    int type, timeout_ms, ends[2];
    char said = 0;
    if (!PyArg_ParseTuple(args, "Onisi", &client, &at, &type, &name, &timeout_ms))
        return NULL;
    if (!bound)
        return not_bound();
    if (pipe(ends) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    pid_t child = fork();
    if (child == 0)
        answer(ends[1], (char *)client + at, type, name);
    int failed = errno;
    close(ends[1]);
    if (child > 0) {
        Py_BEGIN_ALLOW_THREADS
        struct pollfd waits = {ends[0], POLLIN, 0};
        if (poll(&waits, 1, timeout_ms) < 1 || read(ends[0], &said, 1) != 1) {
            said = 0;
            kill(child, SIGKILL);
        }
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
        Py_END_ALLOW_THREADS
    }
    close(ends[0]);
    if (child < 0) {
        errno = failed;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyBool_FromLong(said == 'y');
}

static PyMethodDef module_methods[] = {
    {"bind", bind, METH_O, "bind(addresses): take the addresses of FUNCTIONS, in their order."},
    {"columns", columns, METH_O,
     "columns(records): return the columns of keys and of values of this module's records, each as (bitmap of those that "
     "are there, None if all are; number of the others; offsets; bytes)."},
    {"looks_right", looks_right, METH_VARARGS,
     "looks_right(client, at, type, name, timeout_ms): whether a client's handle lies at an offset of its object, is "
     "of a type, and has a name that begins so. A child process looks."},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, "airflow_kstreams_columns",
    "Lets records cross between librdkafka and Python in batches.", -1, module_methods, NULL, NULL, NULL, NULL};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec, const char *name) {
    PyObject *type = PyType_FromSpec(spec);
    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0)
        Py_CLEAR(type);
    return (PyTypeObject *)type;
}

PyMODINIT_FUNC PyInit_airflow_kstreams_columns(void) {
    PyObject *module = PyModule_Create(&module_def);
    if (module == NULL)
        return NULL;
    PyObject *size = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__basicsize__");
    header_bytes = size == NULL ? -1 : PyLong_AsSsize_t(size);
    Py_XDECREF(size);
    PyObject *names = PyTuple_New((Py_ssize_t)FUNCTION_COUNT);
    for (size_t i = 0; names != NULL && i < FUNCTION_COUNT; i++) {
        PyObject *name = PyUnicode_FromString(FUNCTIONS[i]);
        if (name == NULL)
            Py_CLEAR(names);
        else
            PyTuple_SetItem(names, (Py_ssize_t)i, name);
    }
    int fits = header_bytes > 0 && names != NULL && PyModule_AddObjectRef(module, "FUNCTIONS", names) == 0 &&
               PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) == 0;
    Py_XDECREF(names);
    place_type = fits ? add_type(module, &place_spec, "Place") : NULL;
    record_type = place_type ? add_type(module, &record_spec, "Record") : NULL;
    PyTypeObject *queue_type = record_type ? add_type(module, &queue_spec, "Queue") : NULL;
    PyTypeObject *sender_type = queue_type ? add_type(module, &sender_spec, "Sender") : NULL;
    if (sender_type == NULL)
        Py_CLEAR(module);
    Py_XDECREF((PyObject *)queue_type);
    Py_XDECREF((PyObject *)sender_type);
    return module;
}
