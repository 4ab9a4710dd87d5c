"""Describes lost data, and gives the commands by which an operator accepts the loss.

Rule: a run never passes over a loss, and never accepts it by itself. An error names every partition of which
something is missing, its offsets and how many records there were at most, and ends with commands in which
only the broker's address is left to fill in; the run after them works. They are forms of ``airflow-kstreams
reset``, whose ``--accept`` records the offsets that an operator accepts
(:mod:`airflow_kstreams.batch.evidence.moved_offsets`), and Kafka's own for topics.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from airflow_kstreams.streams.errors import DataLossError
from airflow_kstreams.streams.figures.number_texts import counted
from airflow_kstreams.streams.naming.commands import (
    accept_command,
    create_topics_command,
    delete_topic_command,
    drop_slice_command,
    give_up_command,
)
from airflow_kstreams.streams.partitioning.partition_groups import all_partitions, first_few
from airflow_kstreams.streams.plan import TopologyPlan
from airflow_kstreams.streams.ports import TopicPartition
from airflow_kstreams.streams.records.record_queue import LastRecord

#: Placeholder of the bootstrap servers in every command.
BROKER = "<broker>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A loss of data.

    :param partitions: partitions whose offset must be set to accept the loss.
    :param text: the missing offsets, their places, and the most records that they may hold.
    :param scenario: option of ``airflow-kstreams reset`` that sets the offset at which reading goes on once
        the loss is accepted.
    :param advice: the reason for that option, and others; empty when there is no choice.
    :param first: commands to execute before the reset.
    """

    partitions: tuple[TopicPartition, ...]
    text: str
    scenario: str = "--to-earliest"
    advice: str = ""
    first: tuple[str, ...] = ()


def deleted(partition: TopicPartition, *, expected: int, log_start: int, reader: str = "") -> Loss:
    """Describe records that retention, or an operator, deleted before they were read.

    :param expected: offset to read next.
    :param reader: the task or run that had to read it.
    """
    return Loss(
        partitions=(partition,),
        text=f"{partition}: records from offset {expected} to {log_start} are gone, at most "
        f"{log_start - expected}; the log starts at {log_start}{reader}",
    )


def interval_deleted(partition: TopicPartition, *, log_start: int, interval: str) -> Loss:
    """Describe a log that begins in or past the data interval that is to be read.

    :param interval: the data interval in words.
    """
    return Loss(
        partitions=(partition,),
        text=f"{partition}: records from offset 0 to {log_start} are gone, at most {log_start}; the log "
        f"starts at {log_start} with nothing that is dated before the data interval {interval}, so that "
        "records of the interval may be among them",
        advice="this processes what is left of the interval",
    )


def interval_incomplete(partition: TopicPartition, *, gone: str, interval: str) -> Loss:
    """Describe a log that lacks records of a data interval which the live application's runs have read.

    :param gone: the missing offsets, and who read them, in words.
    :param interval: the data interval in words.
    """
    return Loss(
        partitions=(partition,),
        text=f"{partition}: {gone}: records of the data interval {interval} may be among them",
        advice="this processes what is left of the interval",
    )


def truncated(partition: TopicPartition, *, expected: int, log_end: int, why: str) -> Loss:
    """Describe a log that ends before an offset that it had reached.

    :param expected: the offset that it had reached.
    :param why: the evidence, in words.
    """
    return Loss(
        partitions=(partition,),
        text=f"{partition}: the log ends at {log_end}, but {why} {expected}: it was truncated, records from "
        f"offset {log_end} to {expected} are gone, at most {expected - log_end}",
        scenario="--to-latest",
        advice="this goes on at the log's end; --to-earliest instead reads again what is left of it, so that "
        "what was processed comes twice and what was written since the truncation comes at all",
    )


def rewritten(
    partition: TopicPartition, *, position: int, expected: LastRecord, found: LastRecord | None
) -> Loss:
    """Describe a log that was truncated before an offset that it had reached, and has grown again.

    :param position: offset to read next.
    :param expected: the last record that runs have read before it.
    :param found: the first record from that offset on that differs, None when there is none.
    """
    if found is None:
        now = f"there is no record at offset {expected.offset}"
    elif found.offset == expected.offset:
        now = f"the record at offset {found.offset} is of leader epoch {found.epoch}"
    else:
        now = f"there is a record of leader epoch {found.epoch} at offset {found.offset}"
    return Loss(
        partitions=(partition,),
        text=f"{partition}: runs have read the record at offset {expected.offset} under leader epoch "
        f"{expected.epoch} as the last one before offset {position}, but now {now}: the log was truncated "
        "and has grown again, so that records which were read are gone, and others that took their offsets "
        "were not read; how many cannot be known",
        scenario=f"--to-offset {position}",
        advice="this goes on where runs have read to and leaves out what took the offsets before it; "
        "--to-earliest instead reads again all that is there, so that what was processed comes twice",
    )


def rewritten_under_way(
    partition: TopicPartition, *, stop: tuple[int, int], found: tuple[int, int], run: tuple[str, str]
) -> Loss:
    """Describe a log that was truncated before the stop offset of the slice under way, and has grown again.

    :param stop: stop offset, and the leader epoch at the log's end when it was frozen.
    :param found: offset and leader epoch of a record before the stop.
    :param run: application id and run id.
    """
    return Loss(
        partitions=(),
        text=f"{partition}: run {run[1]!r} stops at {stop[0]}, where the log was of leader epoch {stop[1]} "
        f"when the stop was frozen, but now the record at offset {found[0]} is of leader epoch {found[1]}: "
        "the log was truncated and has grown again, so that records of the slice are gone, and others took "
        "their offsets; how many cannot be known",
        advice="this drops the slice, and the next run goes on where this one has committed",
        first=(drop_slice_command(run[0]),),
    )


def truncated_below(
    partition: TopicPartition, *, span: tuple[int, int], log_end: int, run: str, drop: str
) -> Loss:
    """Describe a log that ends before the stop offset of the slice that is under way.

    :param span: offset to read next, and stop offset.
    :param run: the run, in the words of the message.
    :param drop: the command that drops its slice.
    """
    position, stop = span
    lost_already = position > log_end
    return Loss(
        partitions=(partition,) if lost_already else (),
        text=f"{partition}: the log ends at {log_end}, but {run} stops at {stop}: it was truncated, "
        f"records from offset {log_end} to {stop} are gone, at most {stop - log_end}",
        scenario="--to-latest",
        advice="this drops the slice, and the next run goes on where this one has committed"
        + (", or at the log's end where that lies before" if lost_already else ""),
        first=(drop,),
    )


def replaced(topic: str, *, now: str, before: str, partitions: int, run: tuple[str, str]) -> Loss:
    """Describe a topic that was created again, or deleted, while a run is under way.

    :param now: topic id now, empty when there is no such topic.
    :param before: topic id that the run began with.
    :param partitions: number of partitions that the topic has, or had.
    :param run: application id and run id.
    """
    again = () if now else (create_topics_command([topic], partitions),)
    return Loss(
        partitions=tuple(all_partitions({topic: partitions})),
        text=f"topic {topic} is not the one run {run[1]!r} began with: its id is {now or 'gone'}, expected "
        f"{before}; what the run had not read of the old topic is gone, how many records that is cannot be "
        "known",
        advice="this drops the slice, and the next run reads the new topic from its beginning",
        first=(drop_slice_command(run[0]), *again),
    )


def slice_lost(run_id: str, application_id: str, topic: str) -> Loss:
    """Describe a slice that is not in the metadata topic any more.

    :param topic: the metadata topic.
    """
    return Loss(
        partitions=(),
        text=f"run {run_id!r} has begun, and its stop offsets are gone: topic {topic} holds no slice (was it "
        "deleted?)",
        advice="this gives the slice up, and the next run goes on where this one has committed",
        first=(drop_slice_command(application_id),),
    )


def state_lost(
    plan: TopologyPlan, changelog: str, text: str, *, drop_slice: bool = False, read: Collection[str] = ()
) -> Loss:
    """Describe a store whose changelog does not hold the whole of its state.

    :param text: the evidence, in words.
    :param drop_slice: whether a run is under way.
    :param read: the topics that runs have read; all of the plan's unless given.
    """
    start_over = plan.start_over_flags(read) or "nothing"
    dropped = " and drops the slice, so that the next run goes on where this one has committed"
    return Loss(
        partitions=(),
        text=f"{text}; state is gone, how much cannot be known",
        advice=f"this lets the store begin empty{dropped if drop_slice else ''}; "
        f"with {start_over} in place of --internal-topics {changelog} everything is "
        "processed again, and all state begins empty",
        first=(give_up_command(plan.application_id, [changelog], drop_slice=drop_slice),),
    )


def changelog_deleted(
    plan: TopologyPlan,
    partition: TopicPartition,
    *,
    log_start: int,
    drop_slice: bool = False,
    read: Collection[str] = (),
) -> Loss:
    """Describe a changelog that does not begin at its beginning any more, which compaction does not do.

    :param read: as for :func:`state_lost`.
    """
    text = f"{partition}: the changelog's records before offset {log_start} were deleted"
    return state_lost(plan, partition.topic, text, drop_slice=drop_slice, read=read)


def changelog_truncated(
    plan: TopologyPlan,
    partition: TopicPartition,
    *,
    log_end: int,
    expected: int,
    why: str,
    drop_slice: bool = False,
    read: Collection[str] = (),
) -> Loss:
    """Describe a changelog that ends before an offset that it had reached.

    :param expected: the offset that it had reached.
    :param why: the evidence, in words.
    :param read: as for :func:`state_lost`.
    """
    text = f"{partition}: the changelog ends at {log_end}, but {why} {expected}: it was truncated"
    return state_lost(plan, partition.topic, text, drop_slice=drop_slice, read=read)


def not_whole(topic: str, text: str, *, application_id: str, deleted: bool = False) -> Loss:
    """Describe a ledger or metadata topic that does not hold all that runs have written.

    :param text: the evidence, in words.
    :param deleted: whether the topic must be made anew, because records of it were deleted.
    """
    return Loss(
        partitions=(),
        text=f"topic {topic}{text}; what runs have decided may be gone with it",
        advice="this gives up what is left of an unfinished slice, and the next run goes on where the last "
        "one has committed",
        first=(*([delete_topic_command(topic)] if deleted else []), drop_slice_command(application_id)),
    )


def progress_lost(partition: TopicPartition, *, start: int, stop: int | None, run_id: str) -> Loss:
    """Describe a committed offset that is gone while a run is under way, which begin had committed.

    :param stop: stop offset of the slice, None when it is not known yet.
    """
    reads = f"from {start} on" if stop is None else f"[{start}, {stop})"
    return Loss(
        partitions=(partition,),
        text=f"{partition}: its committed offset is gone (offsets.retention.minutes?) while run {run_id!r} "
        f"is under way, which reads {reads}: how far it got cannot be known",
        scenario=f"--to-offset {start}",
        advice="this reads the slice from its beginning, and what the run has written of it comes twice, in "
        "state too; --to-offset <offset> instead goes on where you know that it got to",
    )


def progress_taken_back(positions: Mapping[TopicPartition, int], *, text: str) -> list[Loss]:
    """Describe committed offsets that are older than the changelogs that were committed with them.

    :param positions: partition -> its committed offset now.
    :param text: the evidence, in words.
    """
    return [
        taken_back(tp, to=at, text=f"{text}: the group's offsets were taken back, {tp} to {at}")
        for tp, at in positions.items()
    ]


def taken_back(partition: TopicPartition, *, to: int, text: str) -> Loss:
    """Describe a committed offset with which a run that is under way must not go on by itself.

    :param to: the offset at which it may go on.
    :param text: the evidence, in words.
    """
    return Loss(
        partitions=(partition,),
        text=text,
        scenario=f"--to-offset {to}",
        advice="this reads again from there, and what the run has written since comes twice, in state too; "
        "--to-offset <offset> instead goes on where you know that it got to",
    )


def cut_before_slice(partition: TopicPartition, *, application_id: str, log_end: int, text: str) -> Loss:
    """Describe a committed offset that does not fit a slice whose start the log does not reach any more.

    :param text: the evidence, in words.
    """
    return Loss(
        partitions=(partition,),
        text=f"{text}, and the log ends at {log_end}: it was truncated",
        scenario="--to-latest",
        advice="this drops the slice, and the next run goes on at the log's end; what was read before the "
        "truncation does not come twice",
        first=(drop_slice_command(application_id),),
    )


def drop_slice(text: str, application_id: str) -> Loss:
    """Describe a slice that cannot be the one that is under way.

    :param text: the evidence, in words.
    """
    return Loss(
        partitions=(),
        text=f"{text}: the metadata topic was truncated, or the offsets were moved",
        advice="this gives the slice up, and the next run goes on at the committed offsets",
        first=(drop_slice_command(application_id),),
    )


def moved_forward(partition: TopicPartition, *, start: int, to: int, by: str, run: str = "") -> Loss:
    """Describe a committed offset that another program moved over records.

    :param start: the last offset that is known to be of a run, or of an acceptance.
    :param by: the words before ``start`` that name the evidence for it, e.g. "runs have read the partition up
        to".
    :param run: the run that is under way and may have read some of them; empty between two runs.
    """
    again = f", and what run {run!r} has written of it comes twice, in state too" if run else ""
    return Loss(
        partitions=(partition,),
        text=f"{partition}: its committed offset is {to}, which no run has committed, but {by} {start}: a "
        f"program that uses the group of the application (a consumer with its id as group.id?) moved it from "
        f"{start} to {to}, over at most {counted(to - start, 'record')}",
        scenario=f"--to-offset {start}",
        advice=f"stop that program first; this reads them{again}; --to-offset {to} instead leaves them out",
    )


def rolled_back(partition: TopicPartition, *, at: int, run_id: str, left: int, by: str) -> Loss:
    """Describe a committed offset that is not the one with which the last run ended.

    :param run_id: id of the run that has committed it.
    :param left: the offset with which the last run ended.
    :param by: the evidence, in words.
    """
    to = max(at, left)
    return Loss(
        partitions=(partition,),
        text=f"{partition}: its committed offset is {at}, of run {run_id!r}, but the ledger says that {by} "
        f"at {left}: the group's offsets were rolled back",
        scenario=f"--to-offset {to}",
        advice="this goes on at the later of the two, so that nothing comes twice; --to-offset <offset> "
        "instead goes on where you want, and what was read behind it comes twice, in state too",
    )


def recreated(
    topic: str, offsets: Sequence[tuple[int, int]], *, now: str, before: str, since: str = "the last run"
) -> Loss:
    """Describe a topic that was created again between two runs.

    :param offsets: (partition, offset up to which runs have read it).
    :param now: topic id now.
    :param before: topic id that the last run began with.
    :param since: the words that name that run in the text.
    """
    where = first_few([f"offset {offset} of partition {number}" for number, offset in offsets])
    return Loss(
        partitions=tuple(TopicPartition(topic, number) for number, _ in offsets),
        text=f"topic {topic} was created again since {since}: its id is {now}, expected {before}; what "
        f"the old topic held from {where} on is gone, how many records that is cannot be known",
        advice="this reads the new topic from its beginning",
    )


def gone(topic: str, missing: Sequence[tuple[int, int | None]]) -> Loss:
    """Describe a topic that runs have read and that does not exist any more.

    :param missing: (partition, offset up to which runs have read it, None when that is not known).
    """
    return Loss(
        partitions=tuple(TopicPartition(topic, number) for number, _ in missing),
        text=f"topic {topic} does not exist any more, and runs have read it: what was in "
        f"{_rest(topic, missing)} on is gone, how many records that is cannot be known",
        advice="this reads the new topic from its beginning",
        first=(create_topics_command([topic], len(missing)),),
    )


def vanished(topic: str, missing: Sequence[tuple[int, int | None]], there: Sequence[TopicPartition]) -> Loss:
    """Describe partitions that a topic had and has no more.

    :param missing: (partition, offset up to which runs have read it), as for :func:`gone`.
    :param there: its partitions now.
    """
    return Loss(
        partitions=tuple(there),
        text=f"topic {topic} has {counted(len(there), 'partition')}, runs have read "
        f"{len(there) + len(missing)}: what was in {_rest(topic, missing)} on is gone, how many records "
        "that is cannot be known",
        advice="this reads the partitions that are there from their beginning",
    )


def forgotten(partition: TopicPartition, why: str, *, log_start: int) -> Loss:
    """Describe a partition that was read up to an unknown offset.

    :param why: the evidence that it was read, in words.
    """
    gone = f", and those before offset {log_start} are deleted" if log_start else ""
    return Loss(
        partitions=(partition,),
        text=f"{partition}: its committed offset is gone (offsets.retention.minutes?), and no stop offset of "
        f"a finished run takes its place, but {why}; how many records were read cannot be known{gone}",
        advice="this reads it again from its beginning; --to-latest instead leaves out all that is there, "
        "--to-offset <offset> goes on where you know that reading ended",
    )


def end_transactions(held: Mapping[TopicPartition, int]) -> str:
    """Return the way to have partitions read on, with the commands that end transactions of other programs.

    :param held: partition -> its last stable offset, at which the transaction that holds it begins; empty if
        no transaction does.
    """
    if not held:
        return "check the brokers that lead these partitions"
    tool = f"kafka-transactions.sh --bootstrap-server {BROKER}"
    at = {tp: f"--topic {tp.topic} --partition {tp.partition}" for tp in sorted(held)}
    find = "; ".join(f"{tool} describe-producers {place}" for place in at.values())
    abort = "; ".join(f"{tool} abort {place} --start-offset {held[tp]}" for tp, place in at.items())
    return (
        f"find the producer with: {find}; then end its program; if that has ended and the transaction stays, "
        f"abort it with: {abort}"
    )


def data_loss(losses: Sequence[Loss], application_id: str, *, run_id: str) -> DataLossError:
    """Build the error that names all losses, with the commands that accept them."""
    resets: dict[str, list[TopicPartition]] = {}
    for loss in losses:
        if loss.partitions:
            resets.setdefault(loss.scenario, []).extend(loss.partitions)
    commands = list(dict.fromkeys(command for loss in losses for command in loss.first))
    commands += [accept_command(application_id, tps, scenario) for scenario, tps in resets.items()]
    accept = "; then ".join(commands)
    advice = list(dict.fromkeys(loss.advice for loss in losses if loss.advice))
    return DataLossError(
        "; ".join(loss.text for loss in losses),
        fix="; ".join([f"restore what is missing, or accept the loss with: {accept}", *advice]),
        run_id=run_id,
    )


def _rest(topic: str, missing: Sequence[tuple[int, int | None]]) -> str:
    return first_few([f"{topic}-{number} from offset {offset or 0}" for number, offset in missing])
