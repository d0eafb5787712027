"""The segment store: the state of a query as files, and one commit per batch.

A checkpoint is a folder of immutable files. Nothing in it is ever changed or renamed: a file is created atomically
under a new name, and later removed. So the store needs only five calls of a file system (`storage.py`), and its safety
rests on one of them: *create if absent*.

    epochs/<epoch>                 the driver of the query: one file for every start
    plans/<batch>                  what a batch reads, written before it runs; if it is lost, plans/<batch>-1, -2, …
    data/<batch>-<epoch>-<name>    state and rows that tasks have written
    data/<batch>-<epoch>-trip-<n>  the interim record of trip n of a batch, only for the tasks of trip n + 1
    commits/<batch>                the one file that makes a batch exist
    pins/<batch>-<name>            a reader uses this commit
    floors/<batch>                 commits before this one no longer exist: they are being removed
    published/<batch>              the sinks of the driver's process have this batch

**Segments.** The state of an operator is a set of traces (`headrace.trace`), a trace is a list of immutable segments,
and a segment has a unique name. So saving state means writing the new segments, in one file per task, and naming all
living ones. Small segments travel in the task's report and are stored in the commit itself. Files are *bundles*
(`bundle.py`): blocks with checksums, mapped into memory when they are read. The process that has written a file also
maps it, and releases its own copy: state is not memory of a worker, but pages of files, which the workers of a machine
share. For this, files of remote stores are kept on the machine's disk (`kept_files.py`).

**Commits.** The commit of batch n names all results of the batch: the sources' positions and progress, the state of
every operator in every bucket, the counts, and the parts that sinks have to publish. *What no commit names does not
exist.* Tasks that fail, are repeated, run twice at once, or continue after the driver has given them up leave only
files that no commit names.

**The protocol** (`log.py`), and why it is safe:

1. A driver claims an *epoch*: it creates the next file under `epochs/`. Of two drivers that try at once, one gets the
   number and the other takes the next one. The newest epoch owns the query. (A slow driver may get a number that others
   have taken and removed meanwhile; then there is a newer epoch, and it owns nothing.)
2. It reads the last commit, n - 1, and publishes the outputs of this commit that a sink lacks. Sinks can lack only the
   last batch, because every driver publishes batch n before it plans batch n + 1.
3. It plans batch n and creates `plans/n`. If that file exists, an earlier driver has planned the batch and died, or
   will die: the existing plan counts. So every attempt at a batch reads the same input.
4. It runs the batch. Tasks write files whose names contain the epoch and the batch. If loops have feedback, it runs the
   tasks again, trip after trip, each from the results of the trip before. The interim record of a trip has the format
   of a commit, but is data: no commit names it, so it exists only for the tasks of this driver's next trip. After a
   crash the batch runs from its beginning.
5. It looks for a newer epoch; if there is one, it stops (`Superseded`). Otherwise it creates `commits/n`. If that file
   exists, another driver was faster: this one stops too. There is at most one commit for a batch, because a file is
   created at most once, and a commit names only files that were complete before it was created.
6. It publishes, idempotently, by (output, batch, part). Step 2 of the next start repairs a crash between 5 and 6.

Between looking and creating in step 5 a newer driver may begin. Then the older one may still commit batch n once. The
newer driver, which has read commit n - 1, finds `commits/n` taken, drops its own attempt and continues from that
commit: both attempts had the same plan, so nothing is lost and nothing happens twice. The older driver finds the newer
epoch before its next commit. While a new driver starts, the older one may commit, publish, plan and clean up once: so a
file that seems to be missing at a start, in the store or in a sink, counts as missing only after a second look.

It may also sleep between looking and creating until newer drivers have committed batch n and removed that commit: then
it creates `commits/n` anew. But the floor is raised before a commit is removed, and commits below the floor do not
exist. So a driver looks at the floor after it has created a commit, and stops if the commit is below.

**Clean-up** (`cleanup.py`) removes the files of batches up to n that no kept commit names, once this driver has
committed batch n: from then on no driver can make a valid commit of a batch up to n, so none will ever name them. At
least two commits are kept: the older driver may commit batch n and clean up while the tasks of the newer one read
commit n - 1. Readers pin the commit that they read.

**Changes of the query.** An upgrade, or a division among other buckets, is a batch of its own, without input and
output. A driver that looked at the checkpoint before the change may claim its epoch after it. So a commit says which
query made it and how many buckets there are; a driver of another query, or with other buckets, stops when it loads the
commit.

`tests/unit/store` has a model of all this, which tries every order of steps of small runs, and simulations in which the
real code crashes, sleeps, runs concurrently and gets wrong answers from the store at any call.

**Object stores** (`objects.py`) have the five calls, no rename, and listings that are not atomic but show all files
that existed before they began: the store needs no more. In addition, the answer to a call may get lost, or a call may
happen long after its caller gave it up (`remote.py`). A driver that repeats a write recognizes its own file by the
content, and a late call leaves only files that do not count.

**What survives.** A commit and all files that it names are flushed to disk (`fsync`) before the commit counts, and so
are the entries of their folders. So committed batches survive `kill -9` and loss of power. Epochs and floors are
flushed, too. Plans, records of trips and the marks under `published/` are not: they survive `kill -9`, but may be
missing or empty after a loss of power. A plan without a commit has had no effect, so another plan is written beside it:
no plan is ever replaced, because tasks read the plan of their batch themselves. Without its mark a batch is delivered
to the sinks of the process again, as after any crash at that point. Checkpoints in the temporary directory, of queries
without a `checkpoint=`, are not flushed: they end with their process.

**How many files.** A running query has one epoch, at most two floors, and at most `KEPT` + 4 = 14 commits and as many
plans, because it cleans up after every fourth batch. Its data files are those that these commits name, at most one for
each segment, and those that the batches since the last clean-up have left; the number of segments follows from the
number of rows (`headrace.trace`). However long a query runs, it never has more, except for old commits that readers
have pinned.
"""
