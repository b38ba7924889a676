#!/usr/bin/env python3
"""Splits crates/control into crates/cache, crates/reconcile and crates/control (the controller).

    python3 split.py           from the root of a clean checkout: moves, then edits, then Cargo.lock and cargo fmt
    python3 split.py moves     only the moves of files (for a commit of its own, which does not compile)
    python3 split.py edits     the rest, after `moves`
    SPLIT_NO_CARGO=1           leaves Cargo.lock and the format as they are

An exact-match edit whose text has changed is reported, and the program ends with exit code 1 after it has done the rest.
"""
import os
import re
import subprocess
import sys

CONTROL, CACHE, RECONCILE = 'crates/control/src/', 'crates/cache/src/', 'crates/reconcile/src/'
LAYER = {CACHE: 0, RECONCILE: 1, CONTROL: 2}
FOLDER = {number: folder for folder, number in LAYER.items()}
CRATE = {0: 'berth_cache', 1: 'berth_reconcile', 2: 'berth_control'}

# Top-level modules of control by their new crate. All others but those of the controller are of reconcile.
CACHE_TOPS = ['names', 'moments', 'timeline', 'event', 'settings', 'feature_gates', 'surroundings', 'deltas']
CONTROLLER_TOPS = ['controller', 'offline']
# Single files that go elsewhere than their module.
SINGLE = {
    'cache.rs': CACHE + 'view.rs',
    'write/resource.rs': CACHE + 'object/resource.rs',
    'controller/decide.rs': RECONCILE + 'decide.rs',
    'controller/told.rs': RECONCILE + 'context/told.rs',
}
# Names that the root of cache has besides its modules.
CACHE_ROOT = {
    'job_phase': ['JobPhase'],
    'names': ['Name', 'name_of'],
    'view': ['View'],
    'workload_phase': ['WorkloadPhase'],
    'workload_view': ['Member', 'Owner', 'Rare', 'TierWish', 'WorkloadView'],
}
# Items of write.rs that name objects.
OBJECT_ITEMS = ['WORKLOADS', 'TRAINING_REPORTER', 'Kind', 'ObjectKey', 'key', 'cluster_key']
OBJECT_NAMES = OBJECT_ITEMS + ['ResourceKind']
# Modules that the facade of control hands on.
FACADE_CACHE = ['event', 'feature_gates', 'settings', 'surroundings']
FACADE_RECONCILE = ['autoscaler', 'measure', 'write']
FACADE_ITEMS = {'workload::preempt': ['preemption_message', 'preemptor_named'], 'workload::status': ['requests_differ']}

problems = []
count = {'exact': 0}


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path) or '.', exist_ok=True)
    with open(path, 'w', encoding='utf-8') as file:
        file.write(text)


def git(*args):
    return subprocess.run(['git', *args], check=True, capture_output=True, text=True).stdout


def edit(path, old, new, times=1):
    """Replaces a text that must be there that many times."""
    count['exact'] += 1
    text = read(path) if os.path.exists(path) else ''
    if text.count(old) != times:
        problems.append(f'{path}: expected {times} times, found {text.count(old)}:\n    ' + old.replace('\n', '\n    '))
        return
    write(path, text.replace(old, new))


def insert_before(path, line, new):
    """Inserts a text before the comments of the only line that begins so."""
    count['exact'] += 1
    lines = read(path).split('\n')
    found = [index for index, text in enumerate(lines) if text.startswith(line)]
    if len(found) != 1:
        problems.append(f'{path}: {len(found)} lines begin with {line}')
        return
    at = found[0]
    while lines[at - 1].strip().startswith(('///', '#[')):
        at -= 1
    write(path, '\n'.join(lines[:at]) + '\n' + new + '\n'.join(lines[at:]))


# --- where files go -------------------------------------------------------------------------------------------------


def new_path(old):
    """The new path of a file, by its path below crates/control/src."""
    if old in SINGLE:
        return SINGLE[old]
    top = old.split('/')[0].removesuffix('.rs')
    if top == 'cache':
        return CACHE + old.removeprefix('cache/')
    if top in CACHE_TOPS:
        return CACHE + old
    if top in CONTROLLER_TOPS or old == 'lib.rs':
        return CONTROL + old
    return RECONCILE + old


def old_path(new):
    """The inverse of new_path."""
    for old, other in SINGLE.items():
        if other == new:
            return old
    for folder in LAYER:
        if new.startswith(folder):
            rest = new.removeprefix(folder)
            top = rest.split('/')[0].removesuffix('.rs')
            return rest if folder != CACHE or top in CACHE_TOPS else 'cache/' + rest
    raise ValueError(new)


def moves():
    found = git('ls-files', CONTROL).split()
    moved = {path: new_path(path.removeprefix(CONTROL)) for path in found}
    for old, new in moved.items():
        if old != new:
            os.makedirs(os.path.dirname(new), exist_ok=True)
            git('mv', old, new)
    print(f'moved {sum(old != new for old, new in moved.items())} of {len(moved)} files')


# --- reading Rust ---------------------------------------------------------------------------------------------------

LEX = re.compile(r'//[^\n]*|/\*.*?\*/|r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\\\'])\'', re.S)


def code_only(text):
    """The text with comments, strings and characters blanked, at the same offsets."""
    return LEX.sub(lambda found: re.sub(r'[^\n]', ' ', found.group(0)), text)


def module_of(old):
    """The module of a file, by its path below crates/control/src."""
    return () if old == 'lib.rs' else tuple(old.removesuffix('.rs').split('/'))


def use_paths(code, at):
    """The paths of a use tree that begins there, as lists of names, each with its last name as it is known."""
    found = []

    def tree(prefix, at):
        name = ''
        while True:
            c = code[at]
            if c == '{':
                at += 1
                while True:
                    while code[at].isspace() or code[at] == ',':
                        at += 1
                    if code[at] == '}':
                        return at + 1
                    at = tree(prefix, at)
            elif c in ',};':
                if name.strip():
                    found.append(prefix + [name.strip()])
                return at
            elif code.startswith('::', at):
                prefix, name, at = prefix + [name.strip()], '', at + 2
            else:
                name, at = name + c, at + 1

    tree([], at)
    return found


def references(code, module, modules):
    """Modules, and items of modules, that a file names by paths: pairs of a module and the rest of the path."""
    found = []
    for use in re.finditer(r'\buse\s+(?=(?:crate|super|self|[a-z_]+)\b)', code):
        found += use_paths(code, use.end())
    rest = re.sub(r'\buse\s[^;]*;', '', code)
    found += [path.group(0).split('::') for path in re.finditer(r'\b(?:crate|super|self|[a-z_]+)(?:::\w+)+', rest)]
    resolved = []
    for names in found:
        names = [name.split(' as ')[0].strip() for name in names]
        if names[0] == 'crate':
            base, names = (), names[1:]
        elif names[0] in ('self', 'super'):
            base = module
            while names and names[0] in ('self', 'super'):
                base, names = base[:-1] if names[0] == 'super' else base, names[1:]
        elif module + (names[0],) in modules:
            base = module
        else:
            continue
        while names and base + (names[0],) in modules:
            base, names = base + (names[0],), names[1:]
        resolved.append((base, tuple(names)))
    return resolved


def matching(code, at):
    """The offset behind the bracket that closes the one at that offset."""
    pairs = {'{': '}', '(': ')', '[': ']'}
    depth, at = [pairs[code[at]]], at + 1
    while depth:
        c = code[at]
        if c in pairs:
            depth.append(pairs[c])
        elif c == depth[-1]:
            depth.pop()
        at += 1
    return at


def self_type(header):
    """The type of an impl block, by the text before its brace."""
    rest = header[header.index('impl') + 4:]
    if rest.startswith('<'):
        depth = 0
        for index, c in enumerate(rest):
            depth += (c == '<') - (c == '>' and rest[index - 1] != '-')
            if depth == 0:
                rest = rest[index + 1:]
                break
    rest = re.split(r'\bwhere\b', rest)[0]
    if re.search(r'\sfor\s', rest):
        rest = re.split(r'\sfor\s', rest, maxsplit=1)[1]
    found = re.match(r'\s*&?(?:\'\w+\s)?\s*(?:\w+::)*(\w+)', rest)
    return found.group(1) if found else ''


def end_of_field(code, at, stops):
    """The offset of the first of these characters behind that offset which is in no brackets."""
    angles = 0
    while code[at] not in stops or angles > 0:
        if code[at] in '([{':
            at = matching(code, at)
            continue
        angles += (code[at] == '<') - (code[at] == '>' and code[at - 1] != '-')
        at += 1
    return at


class Item:
    """A declaration with a visibility."""

    def __init__(self, at, was, kind, name, owner, signature):
        self.at, self.was, self.kind, self.name, self.owner, self.signature = at, was, kind, name, owner, signature


QUALIFIED = re.compile(r'\s+(?:(?:async|unsafe|const)\s+)*(fn|struct|enum|trait|type|const|static|mod|use)\b\s*(\w*)')


def items_of(code):
    """The declarations with `pub` or `pub(crate)` of a file, and the headers of its impl blocks by type. Modules of tests are left out."""
    items, impls = [], {}
    stack, begin, at = [], 0, 0
    tests = [(found.start(), matching(code, found.end() - 1))
             for found in re.finditer(r'#\[cfg\(test\)\]\s*mod\s+\w+\s*\{', code)]
    while at < len(code):
        skip = next((end for start, end in tests if start == at), None)
        if skip:
            at = begin = skip
            continue
        c = code[at]
        if c == '{':
            header = code[begin:at]
            found = re.search(r'\b(impl\b.*|(?:struct|enum|trait|union)\s+\w+|fn\s+\w+|mod\s+\w+)', header, re.S)
            text = found.group(1) if found else ''
            if text.startswith(('enum', 'trait', 'fn')):
                at = begin = matching(code, at)
                continue
            owner = ''
            if text.startswith('impl'):
                owner = self_type(text)
                inner = code[at:matching(code, at)]
                assoc = ' '.join(re.findall(r'\n\s+type\s+[^;]*;', inner))
                impls.setdefault(owner, []).append(text + assoc)
            elif text.startswith('struct'):
                owner = text.split()[1]
            stack.append(owner)
            at = begin = at + 1
            continue
        if c == '}':
            if stack:
                stack.pop()
            at = begin = at + 1
            continue
        if c == ';':
            at = begin = at + 1
            continue
        found = re.compile(r'\bpub(\(crate\))?(?=[\s])').match(code, at) if c == 'p' else None
        if found:
            owner = stack[-1] if stack else ''
            was = found.group(0)
            what = QUALIFIED.match(code, found.end())
            in_tuple = re.search(r'struct\s+(\w+)\s*(?:<[^(]*>)?\s*\(', code[begin:at])
            if in_tuple:
                end = end_of_field(code, found.end(), ',)')
                items.append(Item(at, was, 'tuple', '0', in_tuple.group(1), code[at:end]))
            elif what:
                kind, name = what.groups()
                end = found.end()
                if kind == 'use':
                    end = code.index(';', end)
                    names = [name.strip() for path in use_paths(code, what.end(1)) for name in path[-1].split(' as ')]
                    items.append(Item(at, was, 'use', names, '', code[at:end]))
                elif kind in ('enum', 'trait'):
                    end = matching(code, code.index('{', end))
                    items.append(Item(at, was, kind, name, owner, code[at:end]))
                else:
                    stop = '=;' if kind in ('const', 'static') else '{;('if kind == 'struct' else ';' if kind == 'type' else '{;'
                    while code[end] not in stop:
                        end = matching(code, end) if code[end] in '([' else end + 1
                    kind = 'inline' if kind == 'mod' and code[end] == '{' else kind
                    items.append(Item(at, was, kind, name, owner, code[at:end]))
            else:
                name = re.match(r'\s+(\w+)\s*:', code[found.end():])
                end = end_of_field(code, found.end(), ',}')
                items.append(Item(at, was, 'field', name.group(1), owner, code[at:end]))
            at = found.end()
            continue
        at += 1
    return items, impls


# --- edits of sources -----------------------------------------------------------------------------------------------

ATTRIBUTES = '''#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::print_stdout,
        clippy::print_stderr,
        clippy::disallowed_types,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]
#![allow(
    clippy::struct_excessive_bools,
    clippy::fn_params_excessive_bools,
    reason = "facts about jobs and Workloads that no typed phase holds yet"
)]
'''

CACHE_DOCS = '''//! Cache: the last observed state of the cluster's objects, with indexes, without I/O, clock or async.
//!
//! Only observations ([`event::Observation`]) change the [`View`]. An object is one record; the indexes beside a record follow each change of it. The crate
//! decides nothing, and knows no write that is under way. It knows the model of the engine, because the view keeps the pod sets of a Workload in the form
//! in which the engine takes them; it holds no world of the engine, and asks for no plan.
//!
//! Where to start: [`View`] in `view.rs`, [`WorkloadView`] in `workload_view.rs`, [`object::Kind`] and [`object::ObjectKey`] in `object.rs` (names of what is
//! decided about), `deltas.rs` (translation of API objects for the engine), [`surroundings`] (facts about the cluster for reviews).

'''
RECONCILE_DOCS = '''//! Reconcile: from what was observed to the next write of one object, without I/O, clock or async.
//!
//! A decision is a function of a [`context::Context`] and an object: it reads the cache, the quota, the writes under way and the settings, changes none
//! of them, and asks for at most one [`write::Task`]: a write with its precondition, or a query. [`decide::decide`] chooses the function by the kind of
//! the object. The crate cannot name the controller, which calls it.
//!
//! Rooms: `state` holds the plans, the writes under way, the work queue and the reports, `notes` holds what is noted about each object, `observe` takes
//! observations in. `job`, `workload`, `pod`, `pod_group`, `training_job`, `queues`, `policies` and `provisioning` decide about their objects;
//! `capacity` follows whether capacity turns up, tier by tier; `overruns` finds usage beyond quota.
//!
//! Where to start: `job.rs` (what happens to a Job), `workload.rs` (the life of a Workload).

'''
CONTROL_DOCS = '''//! The controller: from observations and outcomes to the next tasks, without I/O, clock or async.
//!
//! Observations ([`event::Observation`]) build the view of `berth-cache`; what matters for decisions is mirrored, delta by delta, into the
//! engine's world. [`Control::step`] then decides: the engine plans admissions, and every object that changed is judged by
//! one pure function of `berth-reconcile` per kind, which asks for at most one [`write::Task`]. The runtime performs the tasks and reports a
//! [`write::TaskOutcome`] for each; an outcome that is unknown is closed by a write (`state/strays.rs` of `berth-reconcile`), never by assuming.
//!
//! Control never talks to a server, reads a clock, or writes twice to an object whose last write it has not seen.
//!
//! Rooms: `controller` owns the state and runs the step; `offline` runs the same without a cluster. Where to start: [`Control`] in `controller.rs`.

'''

OBJECT_HEADER = '''//! Names of what is decided about: kinds and keys, and the kinds of objects of the API.

mod resource;

use std::fmt;

use berth_api::labels;
use berth_jobs::pods::{DEPLOYMENT_FRAMEWORK, POD_FRAMEWORK, POD_REPORTER, STATEFUL_SET_FRAMEWORK};
use berth_jobs::{BatchJob, JobKind, JobType, KINDS};

pub use crate::object::resource::ResourceKind;

'''


def top_items(text):
    """The top-level items of a file behind its imports: pairs of a name and the text with its comments and attributes."""
    code = code_only(text)
    found, at = [], 0
    pattern = re.compile(r'^(?:pub(?:\([\w ]+\))?\s+)?(?:const\s+)?(?:(fn|struct|enum|trait|type|const|static|impl)\b|(?=[A-Z_]+\s*:))', re.M)
    lines = text.split('\n')
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line) + 1)
    index = 0
    while index < len(lines):
        line = code[offsets[index]:offsets[index + 1]]
        if not pattern.match(line) or line.startswith(('mod ', 'use ')):
            index += 1
            continue
        first = index
        while first > 0 and lines[first - 1].startswith(('///', '#[')):
            first -= 1
        at = offsets[index]
        while code[at] not in '{;':
            at = matching(code, at) if code[at] in '([' else at + 1
        end = matching(code, at) if code[at] == '{' else at + 1
        while offsets[index] < end:
            index += 1
        head = code[offsets[first]:end]
        name = self_type(head[head.index('impl'):head.index('{')]) if re.match(r'impl\b', line) else \
            re.search(r'\b(?:fn|struct|enum|trait|type|const|static)\s+(?:fn\s+)?(\w+)', head).group(1)
        found.append((name, offsets[first], offsets[index]))
    return found


def split_write():
    path = RECONCILE + 'write.rs'
    text = read(path)
    object_text, rest, last = [], [], 0
    for name, begin, end in top_items(text):
        if name in OBJECT_ITEMS:
            rest.append(text[last:begin])
            object_text.append(text[begin:end].strip('\n') + '\n')
            last = end
    rest.append(text[last:])
    constants = ''.join(one for one in object_text if re.search(r'^pub\(crate\) const \w+: ', one, re.M))
    others = '\n'.join(one for one in object_text if one not in constants)
    write(CACHE + 'object.rs', OBJECT_HEADER + constants + '\n' + others)
    text = re.sub(r'\n{3,}', '\n\n', ''.join(rest))
    write(path, text.rstrip('\n') + '\n')
    edit(path, 'mod resource;\n', '')
    edit(path, 'pub use resource::ResourceKind;\n', '')
    edit(path, 'use berth_jobs::pods::{DEPLOYMENT_FRAMEWORK, POD_FRAMEWORK, POD_REPORTER, STATEFUL_SET_FRAMEWORK};\n', '')
    edit(path, 'use berth_jobs::{BatchJob, JobKind, JobType, KINDS};\nuse std::fmt;\n', '')
    edit(path, 'pub use berth_lease::Term;\n',
         'pub use berth_cache::object::{Kind, ObjectKey, ResourceKind, WORKLOADS, TRAINING_REPORTER, cluster_key, key};\npub use berth_lease::Term;\n')
    edit(path, 'use berth_api::labels;\n\npub use berth_cache', 'use berth_api::labels;\npub use berth_cache')
    edit(CACHE + 'object/resource.rs', '[`super::Kind`]', '[`crate::object::Kind`]')


def split_cache_root(sources):
    """Cuts the modules and re-exports out of cache.rs, which becomes view.rs."""
    path = CACHE + 'view.rs'
    text = read(path)
    declared = re.findall(r'^(?:pub(?:\(crate\))? )?mod (\w+);\n', text, re.M)
    text = re.sub(r'^(?:pub(?:\(crate\))? )?mod \w+;\n', '', text, flags=re.M)
    hands_on = re.compile(r'^pub\(crate\) use crate::((?:cache::)?\w+)::(\{[^}]*\}|\w+);\n', re.M)
    names = {}
    for found in hands_on.finditer(text):
        listed = [name.strip() for name in found.group(2).strip('{}').split(',') if name.strip()]
        names[found.group(1).removeprefix('cache::')] = listed
    expected = {module: listed for module, listed in CACHE_ROOT.items() if module != 'view'}
    if {module: sorted(listed) for module, listed in names.items()} != expected:
        problems.append(f'{path}: cache.rs hands on {names}, not {expected}')
    body = code_only(hands_on.sub('', text))

    def used(found):
        module = found.group(1)
        listed = [name for name in names[module.removeprefix('cache::')] if re.search(rf'\b{name}\b', body)]
        return f'use crate::{module}::{{{", ".join(listed)}}};\n' if listed else ''

    text = hands_on.sub(used, text)
    # Modules that were children of this one.
    named = [module for module in declared if re.search(rf'(?<![\w:]){module}::', body)]
    first = re.search(r'^use crate::', text, re.M).start()
    text = text[:first] + ''.join(f'use crate::{module};\n' for module in named) + text[first:]
    # The list of modules leaves an empty paragraph.
    write(path, re.sub(r'\n{3,}', '\n\n', text))


def prefix(layer, of):
    return 'crate' if layer == of else CRATE[of]


def layer_of_top(top):
    if top in ('cache', *CACHE_TOPS):
        return 0
    return 2 if top in CONTROLLER_TOPS else 1


def rewrite_paths(text, layer, path):
    """Paths from the root of control, as the new crates have them."""

    def replaced(found):
        top, behind = found.group(1), found.group(2)
        if top == 'cache':
            if behind != '::':
                problems.append(f'{path}: `crate::cache` is no path to an item')
            return prefix(layer, 0) + behind
        if top == 'write' and layer == 0:
            return 'crate::object' + behind
        if top == 'testing':
            return 'crate::testing' + behind
        return f'{prefix(layer, layer_of_top(top))}::{top}{behind}'

    if re.search(r'\bcrate::\{', text):
        problems.append(f'{path}: a list of imports from the root')
    tops = '|'.join(sorted(TOPS, key=len, reverse=True))
    return re.sub(rf'(?<![\w:])crate::({tops})\b(::)?', lambda found: replaced_or(found, replaced), text)


def replaced_or(found, replaced):
    class With:
        @staticmethod
        def group(index):
            return found.group(index) or ''
    return replaced(With)


USE = re.compile(r'^use [^;]*;\n', re.M)


def group_imports(text):
    """Imports of the new crates stand with those of other crates: moves them there from the paragraph of this crate's own imports."""
    lines = text.split('\n')
    # Paragraphs of imports at the beginning: lists of [first line, line behind the last].
    statements, index = [], 0
    while index < len(lines):
        line = lines[index]
        if re.match(r'(pub(\([\w: ]+\))? )?use ', line):
            first = index
            while not lines[index].endswith(';'):
                index += 1
            statements.append((first, index + 1))
        elif re.match(r'(//|#!?\[|(pub(\(crate\))? )?mod \w+;|$)', line) or line.startswith((' ', ')')):
            pass
        else:
            break
        index += 1
    groups = []
    for first, last in statements:
        if groups and groups[-1][-1][1] == first:
            groups[-1].append((first, last))
        else:
            groups.append([(first, last)])
    name = lambda statement: re.sub(r'^(pub(\([\w: ]+\))? )?use ', '', lines[statement[0]]).split('::')[0]
    ours = ('crate', 'super', 'self')
    new = tuple(CRATE.values())
    is_external = lambda statement: name(statement) not in (*ours, 'std', *new)
    for group in groups:
        moved = [one for one in group if name(one) in new and lines[one[0]].startswith('use ')]
        # A paragraph in which other crates stand already is sorted by rustfmt.
        if not moved or any(is_external(one) for one in group):
            continue
        taken = [lines[first:last] for first, last in moved]
        stays = len(group) > len(moved)
        target = next((other for other in groups if other is not group and any(is_external(one) for one in other)), None)
        result = []
        gone = {index for first, last in moved for index in range(first, last)}
        for index, line in enumerate(lines):
            if target and index == target[-1][1]:
                result += [line for one in taken for line in one]
            if not target and index == group[0][0]:
                result += [line for one in taken for line in one] + ([''] if stays else [])
            if index not in gone:
                result.append(line)
        text = '\n'.join(result)
        return re.sub(r'\n{3,}', '\n\n', text)
    return text


def short(line):
    """Breaks a comment line that a longer path has made longer than 160 columns."""
    found = re.match(r'\s*//[/!]? ', line)
    if len(line) <= 160 or not found:
        return line
    at = line.rindex(' ', 0, 161)
    return line[:at] + '\n' + found.group(0) + line[at + 1:]


def is_test(old):
    return old.endswith('tests.rs') or '/tests/' in old or old.startswith('testing')


def sources_of(layer):
    found = []
    for folder, _, files in os.walk(FOLDER[layer]):
        found += [os.path.join(folder, file) for file in files if file.endswith('.rs')]
    return sorted(found)


TOPS = []


def public(layer, texts, upper, modules, roots):
    """Offsets of `pub(crate)` that become `pub` in a crate, by file, and its root modules that have to be public.

    A declaration becomes public where a crate above names it: its module is on a path there, or a re-export is, and its name is a word there. Types in the
    signature of a public declaration become public with it.
    """
    words = set()
    wanted = {(root,) for root in roots} | {()}
    for path, text in upper.items():
        code = code_only(text)
        words |= set(re.findall(r'\w+', code))
        for module, _ in references(code, module_of(old_path(path)), modules):
            wanted |= {module[:length] for length in range(len(module) + 1)}
    if layer == 0:
        wanted |= {('cache',)}
    else:
        for name in FACADE_ITEMS:
            parts = tuple(name.split('::'))
            wanted |= {parts[:length] for length in range(len(parts) + 1)}
    parsed = {path: items_of(code_only(text)) for path, text in texts.items() if not is_test(old_path(path)) and not path.endswith('/lib.rs')}
    types = {item.name for items, _ in parsed.values() for item in items if item.kind in ('struct', 'enum', 'trait', 'type')}
    needed_types, needed_names = set(), set()
    for listed in (CACHE_ROOT if layer == 0 else FACADE_ITEMS).values():
        needed_names |= set(listed)
    chosen = set()
    modules_of = {path: module_of(old_path(path)) for path in parsed}
    # write/resource.rs is reached by a re-export.
    changed = True
    while changed:
        before = (len(chosen), len(needed_types), len(needed_names))
        for path, (items, impls) in parsed.items():
            module = modules_of[path]
            is_open = module in wanted or path.startswith(CACHE + 'object')
            for item in items:
                key = (path, item.at)
                if key in chosen:
                    continue
                take = item.was == 'pub'
                if item.kind == 'mod':
                    if module + (item.name,) in wanted:
                        chosen.add(key)
                    continue
                if item.kind == 'use':
                    if take or (is_open and any(name in words for name in item.name)) or needed_names & set(item.name):
                        needed_names |= set(item.name)
                        needed_types |= set(item.name) & types
                        chosen.add(key)
                    continue
                if item.kind in ('field', 'tuple'):
                    take = item.owner in needed_types and (take or item.kind == 'tuple' or item.name in words)
                elif item.owner:
                    take = item.owner in needed_types and (take or item.name in words)
                else:
                    is_type = item.kind in ('struct', 'enum', 'trait', 'type')
                    take = take or (is_open and item.name in words) or item.name in needed_names or \
                        (is_type and item.name in needed_types)
                    if take and is_type:
                        needed_types.add(item.name)
                if take:
                    chosen.add(key)
                    needed_types |= set(re.findall(r'\w+', item.signature)) & types
            for owner, headers in impls.items():
                if owner in needed_types:
                    needed_types |= set(re.findall(r'\w+', ' '.join(headers))) & types
        changed = before != (len(chosen), len(needed_types), len(needed_names))
    offsets = {}
    for path, (items, _) in parsed.items():
        for item in items:
            if (path, item.at) in chosen and item.was != 'pub':
                offsets.setdefault(path, []).append(item.at)
    return offsets, wanted


def sources():
    """Edits of the sources of the three crates."""
    global TOPS
    all_files = {path: layer for layer in (0, 1, 2) for path in sources_of(layer)}
    TOPS = sorted({old_path(path).split('/')[0].removesuffix('.rs') for path in all_files} - {'lib'} | {'decide'})
    source_edits()
    split_write()
    split_cache_root(all_files)
    testing_of_cache()
    libs()
    # Visibility, from above: modules and words of the crates above.
    texts = {layer: {path: read(path) for path in sources_of(layer)} for layer in (0, 1, 2)}
    modules = {module_of(old_path(path)) for layer in texts for path in texts[layer]} | {('object',)}
    turned = 0
    roots = {0: ['object', *FACADE_CACHE], 1: [*FACADE_RECONCILE, 'decide', 'context']}
    open_roots = {}
    for layer in (1, 0):
        upper = {path: text for above in range(layer + 1, 3) for path, text in texts[above].items()}
        offsets, wanted = public(layer, texts[layer], upper, modules, roots[layer])
        open_roots[layer] = wanted
        for path, places in offsets.items():
            text = texts[layer][path]
            for at in sorted(places, reverse=True):
                assert text.startswith('pub(crate)', at), (path, at)
                text = text[:at] + 'pub' + text[at + len('pub(crate)'):]
                turned += 1
            texts[layer][path] = text
    for layer in texts:
        for path, text in texts[layer].items():
            new = group_imports(rewrite_paths(text, layer, path))
            write(path, '\n'.join(short(line) for line in new.split('\n')))
    root_modules(0, open_roots[0])
    root_modules(1, open_roots[1])
    for layer in (0, 1):
        todo = undocumented(layer, open_roots[layer])
        print(f'{len(todo)} undocumented public declarations in {FOLDER[layer]}')
        for line in todo:
            print('    ' + line) if os.environ.get('SPLIT_LIST') else None
        allow = ('#![allow(missing_docs, reason = "declarations that were inside of one crate; their comments are being written")]\n' if todo else '')
        write(FOLDER[layer] + 'lib.rs', read(FOLDER[layer] + 'lib.rs').replace('ALLOW\n', allow))
    print(f'{turned} declarations became public')


def undocumented(layer, wanted):
    """Public declarations without a comment, by file and line: about those that the lint `missing_docs` finds."""
    found = []
    for path in sources_of(layer):
        if path.endswith('/lib.rs') or is_test(old_path(path)):
            continue
        text = read(path)
        lines = text.split('\n')
        for item in items_of(code_only(text))[0]:
            if item.was != 'pub' or item.kind in ('use', 'mod'):
                continue
            number = text.count('\n', 0, item.at)
            above = number - 1
            while lines[above].strip().startswith('#['):
                above -= 1
            if item.kind != 'tuple' and not lines[above].strip().startswith('///'):
                found.append(f'{path}:{number + 1}: {item.kind} {item.owner + "::" if item.owner else ""}{item.name}')
    return found


def root_modules(layer, wanted):
    """Declares the modules of a crate in its root: public where a crate above uses them."""
    folder = FOLDER[layer]
    names = {os.path.relpath(path, folder).split('/')[0].removesuffix('.rs') for path in sources_of(layer)} - {'lib'}
    lines = []
    for name in sorted(names):
        if name == 'testing':
            lines += ['#[cfg(test)]', 'mod testing;']
            continue
        if name.endswith('_tests'):
            continue
        of = (name,) if layer == 1 or name in CACHE_TOPS or name == 'object' else ('cache', name)
        lines.append(f'pub mod {name};' if of in wanted else f'mod {name};')
    path = folder + 'lib.rs'
    write(path, read(path).replace('MODULES', '\n'.join(lines)))


def libs():
    hands_on = []
    for module, listed in CACHE_ROOT.items():
        names = listed[0] if len(listed) == 1 else '{' + ', '.join(listed) + '}'
        hands_on.append(f'pub use crate::{module}::{names};')
    write(CACHE + 'lib.rs', CACHE_DOCS + ATTRIBUTES + 'ALLOW\n' + '\nMODULES\n\n' + '\n'.join(hands_on) + '\n')
    write(RECONCILE + 'lib.rs', RECONCILE_DOCS + ATTRIBUTES + 'ALLOW\n' + '\nMODULES\n')
    items = ''.join(f'pub use berth_reconcile::{module}::{listed[0] if len(listed) == 1 else "{" + ", ".join(listed) + "}"};\n'
                    for module, listed in FACADE_ITEMS.items())
    write(CONTROL + 'lib.rs', CONTROL_DOCS + ATTRIBUTES + '\nmod controller;\npub mod offline;\n\n'
          f'pub use berth_cache::{{{", ".join(FACADE_CACHE)}}};\n'
          f'pub use berth_reconcile::{{{", ".join(FACADE_RECONCILE)}}};\n' + items +
          '\npub use crate::controller::{Control, Step};\n')


def testing_of_cache():
    """The few functions of the fixture that tests of cache need, too: a module of tests cannot be shared by crates."""
    text = read(RECONCILE + 'testing.rs')
    wanted = {}
    for name, begin, end in top_items(text):
        if name in ('now', 'in_seconds', 'at', 'read'):
            wanted[name] = text[begin:end].strip('\n')
    if set(wanted) != {'now', 'in_seconds', 'at', 'read'}:
        problems.append(f'testing.rs: has only {sorted(wanted)}')
    header = '//! Times and objects for tests of the cache.\n\nuse jiff::Timestamp;\nuse serde_json::Value;\n\nuse crate::moments::after_seconds;\n\n'
    write(CACHE + 'testing.rs', header + '\n\n'.join(wanted.values()) + '\n')


# Clippy asks public functions with a Result when they fail.
ERRORS = [
    (CACHE + 'deltas.rs', 'pub(crate) fn groups(', 'A quota cannot be read; the text names its field.'),
    (CACHE + 'deltas.rs', 'pub(crate) fn selector(', 'A requirement has an unknown operator; the text names the requirement.'),
    (CACHE + 'policy_rules.rs', 'pub(crate) fn selector(', 'The selector is invalid; the text names its field.'),
    (CACHE + 'priorities.rs', '    pub(crate) fn priority(', 'A class does not exist; the text is its name.'),
    (CACHE + 'provisioning_book.rs', '    pub(crate) fn config(', 'The check names no configuration that exists; the text says why.'),
]


def say_errors(path, line, errors):
    """Adds a paragraph about errors to the comment of a function that has none."""
    count['exact'] += 1
    lines = read(path).split('\n')
    found = [index for index, text in enumerate(lines) if text.startswith(line)]
    if len(found) != 1:
        problems.append(f'{path}: {len(found)} lines begin with {line}')
        return
    at = found[0]
    while lines[at - 1].strip().startswith('#['):
        at -= 1
    first = at
    while lines[first - 1].strip().startswith('///'):
        first -= 1
    if any('# Errors' in text for text in lines[first:at]):
        return
    indent = re.match(r' *', line).group(0)
    lines[at:at] = ([f'{indent}///'] if first < at else []) + [f'{indent}/// # Errors', f'{indent}/// {errors}']
    write(path, '\n'.join(lines))


def source_edits():
    """Exact edits before paths are rewritten: paths are those of control."""
    edit(CACHE + 'admission_checks.rs', 'crate::workload::status::is_true(', 'berth_api::conditions::is_true(')
    edit(CACHE + 'workload_view.rs', ', see [`crate::training_job::restarts`].', ' (`training_job/restarts.rs` of `berth-reconcile`).')
    # An impl of a type of the cache, as a function.
    path = RECONCILE + 'policies/limits.rs'
    text = read(path)
    block = next((text[begin:end] for name, begin, end in top_items(text) if name == 'Limits'), None)
    if block:
        inner = block.strip('\n').split('\n')[1:-1]
        inner = '\n'.join(line.removeprefix('    ') for line in inner) + '\n'
        if inner.count('&self') != 1:
            problems.append(f'{path}: expected one method of Limits')
        edit(path, block, re.sub(r'\bself\.', 'limits.', inner.replace('&self', 'limits: &Limits')))
        edit(path, 'rules.limits.broken_by(workload,', 'broken_by(&rules.limits, workload,')
    # Comments below the controller cannot link to it.
    for path in sources_of(0) + sources_of(1):
        text = read(path)
        new = re.sub(r'^(\s*//[/!]? .*)$', lambda line: line.group(0).replace('[`crate::Control`]', 'the controller')
                     .replace('`crate::Control`', 'the controller').replace(' `Control` itself', ' the controller itself'), text, flags=re.M)
        if new != text:
            write(path, new)
    edit(RECONCILE + 'context.rs', 'mod managed;\n', 'mod managed;\nmod told;\n')
    for path, line, errors in ERRORS:
        say_errors(path, line, errors)
    controller = CONTROL + 'controller.rs'
    edit(controller, 'mod decide;\n', '')
    edit(controller, 'mod told;\n', '')
    edit(controller, 'use crate::context::Context;\n', 'use crate::context::Context;\nuse crate::controller::digest::Digest;\nuse crate::decide;\n')
    edit(controller, 'self.context().recompute()', 'self.digest().recompute()')
    edit(controller, 'self.context().held()', 'self.digest().held()')
    insert_before(controller, '    fn planning(',
                  '    /// The state that a digest shows.\n    fn digest(&self) -> Digest<\'_> {\n        Digest { view: &self.view, quota: &self.quota }\n    }\n\n')
    digest = CONTROL + 'controller/digest.rs'
    edit(digest, 'impl Context<\'_> {\n',
         '/// The state that a digest shows.\npub(super) struct Digest<\'a> {\n    pub(super) view: &\'a View,\n    pub(super) quota: &\'a Quota,\n}\n\n'
         'impl Digest<\'_> {\n')
    edit(digest, 'use crate::cache::{Name, WorkloadView};\nuse crate::context::Context;\n',
         'use crate::cache::{Name, View, WorkloadView};\nuse crate::state::Quota;\n')
    edit(digest, '    pub(crate) fn ', '    pub(super) fn ', 2)


# --- manifests ------------------------------------------------------------------------------------------------------

OUTSIDE = ['k8s_openapi', 'serde', 'serde_json', 'jiff', 'rustc_hash', 'hashbrown', 'proptest', 'mimalloc']
OURS = ['berth_api', 'berth_cache', 'berth_engine', 'berth_jobs', 'berth_lease', 'berth_quantity', 'berth_reconcile', 'berth_sim']


def dependencies(layer):
    """Packages that the code of a crate names, and those that only its tests name."""
    ships, tests = set(), set()
    others = []
    if layer == 2:
        others = [os.path.join(folder, file) for root in ('crates/control/tests', 'crates/control/benches')
                  for folder, _, files in os.walk(root) for file in files if file.endswith('.rs')]
    for path in sources_of(layer) + others:
        text = re.sub(r'//[^\n]*', '', read(path))
        code = code_only(text)
        is_whole_test = path in others or is_test(path.removeprefix(FOLDER[layer]))
        cut = re.search(r'#\[cfg\(test\)\]\s*mod\s+\w+\s*\{', code)
        end = 0 if is_whole_test else cut.start() if cut else len(code)
        for name in OURS + OUTSIDE:
            pattern = re.compile(rf'\b{name}\s*::|\buse\s+{name}\b')
            if pattern.search(code[:end]):
                ships.add(name)
            if pattern.search(code[end:]):
                tests.add(name)
    tests -= ships | {CRATE[layer]}
    return ships, tests


def manifests():
    shipped = {}
    for layer, name in ((0, 'cache'), (1, 'reconcile'), (2, 'control')):
        ships, tests = dependencies(layer)
        shipped[name] = ships
        row = lambda names: ''.join(f'{one.replace("_", "-") if one != "serde_json" else one}.workspace = true\n'
                                    for one in OURS + OUTSIDE if one in names)
        package = read('crates/control/Cargo.toml')
        head = re.match(r'\[package\]\n.*?\n\n', package, re.S).group(0)
        behind = package[package.index('\n[[bench]]'):]
        if name != 'control':
            head = head.replace('berth-control', f'berth-{name}').replace('autotests = false\n', '')
            behind = ''
        text = head + '[lints]\nworkspace = true\n\n[dependencies]\n' + row(ships)
        text += '\n[dev-dependencies]\n' + row(tests) if tests else ''
        # The package of control is read for the two others, and is written last.
        write(f'crates/{name}/Cargo.toml', text + behind)
    edit('Cargo.toml', 'berth-control = { path = "crates/control" }\n',
         'berth-cache = { path = "crates/cache" }\nberth-reconcile = { path = "crates/reconcile" }\nberth-control = { path = "crates/control" }\n')
    edit('Cargo.toml', 'berth-control.opt-level = 1\n', 'berth-cache.opt-level = 1\nberth-reconcile.opt-level = 1\nberth-control.opt-level = 1\n')
    return shipped


# --- tools and pages ------------------------------------------------------------------------------------------------


def tools(shipped):
    boundaries = 'crates/xtask/src/tidy/boundaries.rs'
    short = lambda name: name.removeprefix('berth_').replace('_', '-') if name != 'serde_json' else name
    quoted = lambda names: ', '.join(f'"{name}"' for name in sorted(names))

    def rule(name):
        ours = {short(one) for one in shipped[name] if one.startswith('berth_')}
        others = {short(one) for one in shipped[name] if not one.startswith('berth_')}
        return (f'    Rule {{\n        name: "{name}",\n        ours: &[{quoted(ours)}],\n'
                f'        others: Others::Only(&[{quoted(others)}]),\n    }},\n')

    edit(boundaries, '''    Rule {
        name: "control",
        ours: &["api", "engine", "jobs", "lease", "quantity"],
        others: Others::Only(&["hashbrown", "jiff", "k8s-openapi", "rustc-hash", "serde", "serde_json"]),
    },
''', '    // A decision reads the cache and cannot name the controller.\n' + rule('cache') + rule('reconcile') + rule('control'))
    edit(boundaries, 'const RULES: [Rule; 18] =', 'const RULES: [Rule; 20] =')
    edit(boundaries, '            ("berth-control", "berth-runtime"),\n',
         '            ("berth-cache", "berth-lease"),\n            ("berth-cache", "berth-reconcile"),\n            ("berth-reconcile", "berth-control"),\n'
         '            ("berth-control", "berth-runtime"),\n')
    edit(boundaries, 'The runtime reaches the deciding crates through control only.', 'The runtime reaches the cache and the decisions through control only.')
    edit('crates/xtask/src/tidy/purity.rs', 'const PURE: [&str; 7] = ["quantity", "api", "engine", "jobs", "lease", "control", "invariants"];',
         'const PURE: [&str; 9] =\n    ["quantity", "api", "engine", "jobs", "lease", "cache", "reconcile", "control", "invariants"];')
    unaware = 'crates/xtask/src/tidy/unaware.rs'
    edit(unaware, 'const DECIDE: [&str; 2] = ["engine", "control"];', 'const DECIDE: [&str; 4] = ["engine", "cache", "reconcile", "control"];')
    words = 'crates/xtask/src/tidy/words.rs'
    edit(words, 'const CONTROL: &str = "crates/control/src/";',
         'const CONTROL: [&str; 3] = ["crates/cache/src/", "crates/reconcile/src/", "crates/control/src/"];')
    edit(words, '/// Folder of sources that', '/// Folders of sources that')
    edit(words, 'let ships = |path: &str| path.starts_with(CONTROL) && path.ends_with(".rs") && !path.ends_with("tests.rs");',
         'let is_ours = |path: &str| CONTROL.iter().any(|folder| path.starts_with(folder));\n'
         '    let ships = |path: &str| is_ours(path) && path.ends_with(".rs") && !path.ends_with("tests.rs");')
    decisions = 'crates/xtask/src/house/decisions.rs'
    edit(decisions, 'const CONTROL: &str = "crates/control/src/";', 'const RECONCILE: &str = "crates/reconcile/src/";')
    edit(decisions, '/// The sources of `control`.', '/// The sources of `reconcile`.')
    edit(decisions, 'path.strip_prefix(CONTROL)', 'path.strip_prefix(RECONCILE)')
    edit(decisions, '/// Modules of `control` that decide.', '/// Modules of `reconcile` that decide.')
    edit(decisions, '//! Decision files of `control` without unit tests.', '//! Decision files of `reconcile` without unit tests.')
    edit(decisions, '("crates/control/Cargo.toml", ""),', '("crates/reconcile/Cargo.toml", ""),')
    edit(decisions, '("crates/control/src/job/notes.rs", ', '("crates/reconcile/src/job/notes.rs", ')
    edit(decisions, '("crates/control/src/controller.rs", decides),', '("crates/reconcile/src/decide.rs", decides),')
    edit(decisions, 'decision_files_without_tests_are_counted_in_domains_of_control_alone', 'decision_files_without_tests_are_counted_in_domains_of_reconcile_alone')
    house = 'crates/xtask/src/house/mod.rs'
    edit(house, '"house: {} decision files of control, {untested}', '"house: {} decision files of reconcile, {untested}')
    edit('.ci/budgets.txt', '\n5 berth unit\n', '\n5 berth unit\n5 cache unit\n')
    edit('.ci/budgets.txt', '\n25 runtime unit\n', '\n5 reconcile unit\n25 runtime unit\n')


def paths_in_texts():
    """Paths of moved files in pages, comments and lists."""
    table = {}
    for path in sorted(git('ls-files', '-c', '-o', '--exclude-standard', CONTROL, CACHE, RECONCILE).split()):
        if not os.path.exists(path) or path.endswith('/lib.rs'):
            continue
        old = CONTROL + old_path(path) if path not in (CACHE + 'object.rs', CACHE + 'testing.rs') else path
        if old != path:
            table[old] = path
    # Folders, by the files in them.
    folders = {}
    for old, new in table.items():
        if old.removeprefix(CONTROL) in SINGLE:
            continue
        folder, other = os.path.dirname(old), os.path.dirname(new)
        while folder.startswith(CONTROL.rstrip('/')) and folder != CONTROL.rstrip('/'):
            folders.setdefault(folder, set()).add(other)
            folder, other = os.path.dirname(folder), os.path.dirname(other)
    for folder, others in folders.items():
        if len(others) == 1:
            table[folder] = next(iter(others))
    changed = 0
    pattern = re.compile(r'(?<![\w/-])((?:crates/)?control/src/)([\w/]+(?:\.rs)?)(?![\w/])')
    pages = [path for path in git('ls-files').split() if path.endswith(('.md', '.rs', '.txt', '.toml', 'Makefile', '.yaml', '.yml'))]
    for path in pages + [CACHE + 'object.rs', CACHE + 'testing.rs']:
        if not os.path.isfile(path) or path.startswith('docs/results/'):
            continue
        text = read(path)

        def replaced(found):
            of, rest = found.groups()
            new = table.get(CONTROL + rest.rstrip('/'))
            if not new:
                return found.group(0)
            return new if of.startswith('crates/') else new.removeprefix('crates/')

        new = pattern.sub(replaced, text)
        if new != text:
            write(path, new)
            changed += 1
    print(f'paths changed in {changed} files')


def pages():
    page = 'docs/ARCHITECTURE.md'
    edit(page, 'one in-memory **view** (`crates/cache/src/view.rs`). The crate `control` passes', 'one in-memory **view** (`crates/cache/src/view.rs`). The crate `control` passes')
    edit(page, '3. The pure **control** crate turns the plan and the view into writes: **at most one at a time** per object, each with its precondition.',
         '3. The pure crates **reconcile** and **control** turn the plan and the view into writes: **at most one at a time** per object, each with its\n   precondition.')
    edit(page, '| `control` | view, writes under way, decisions per kind | I/O, clock, async |\n',
         '| `cache` | the observed objects with their indexes, and their translation for the engine | decides, knows writes under way, I/O, clock, async |\n'
         '| `reconcile` | the decision about each object, and the state that decisions read | names the controller, I/O, clock, async |\n'
         '| `control` | the controller: the step, observations, outcomes, decisions without a cluster | I/O, clock, async |\n')
    edit(page, '''quantity <- engine, api <- jobs <- control <- runtime       <- manager <- berth
                           jobs <- webhook                  <- manager
                                   control <- configuration <- manager
                                              configuration <- cli     <- berth
''', '''quantity <- engine, api <- jobs <- cache <- reconcile <- control <- runtime       <- manager <- berth
                           jobs <- webhook                                        <- manager
                                                         control <- configuration <- manager
                                                                    configuration <- cli     <- berth
''')
    edit(page, '`control` and `runtime` depend on `lease`, which depends on no crate.', '`reconcile` and `runtime` depend on `lease`, which depends on no crate.')
    edit(page, 'Only `control` translates between `api` and `engine`.', 'Only `cache` and `reconcile` translate between `api` and `engine`.')
    edit(page, 'The code of the engine and of control does not depend on tests:', 'The code of the engine, `cache`, `reconcile` and `control` does not depend on tests:')
    edit(page, 'also the reasons that the engine gives; `control` writes none of them as text.', 'also the reasons that the engine gives; these crates write none of them as text.')
    edit(page, '### Modules of control and of the engine\n\n| module of `control` | content | invariant |\n|---|---|---|\n'
         '| `controller` | the step; observations and outcomes | the controller alone has all owners of state |\n'
         '| `state` | writes under way, plans, the work queue, reports | each object has at most one write under way |\n'
         '| `cache`, `observe` | observed objects with their indexes; the handling of observations | the cache holds only what an observation contained |\n',
         '### Modules of cache, reconcile, control and the engine\n\n| module | content | invariant |\n|---|---|---|\n'
         '| `control`: `controller` | the step; observations and outcomes | the controller alone has all owners of state |\n'
         '| `control`: `offline` | decisions without a cluster | |\n'
         '| `cache` | observed objects with their indexes | the cache holds only what an observation contained |\n'
         '| `cache`: `deltas` | translation of API objects for the engine | an object that cannot be read is inactive, with a message that names the field |\n'
         '| `reconcile`: `decide` | the decision about an object by its kind | a decision changes nothing |\n'
         '| `state` | writes under way, plans, the work queue, reports | each object has at most one write under way |\n'
         '| `observe` | the handling of observations | |\n')
    edit(page, '| `offline` | decisions without a cluster | |\n| `write`', '| `write`')
    edit(page, 'Imports of control point one way (`xtask house`): definitions of state <- `cache` <- `Context` <- decisions of the modules <- `controller`.',
         'Imports point one way (`xtask house`): `cache` <- definitions of state <- `Context` <- decisions of the modules <- `controller`.')
    edit(page, '(`cache/workload_phase.rs`, `cache/job_phase.rs`) and matched.', '(`cache/src/workload_phase.rs`, `cache/src/job_phase.rs`) and matched.')
    edit(page, '(`cache/shed.rs`)', '(`cache/src/shed.rs`)')
    edit(page, '(`cache/ending_pods.rs`)', '(`cache/src/ending_pods.rs`)')
    page = 'CONTRIBUTING.md'
    edit(page, '| `crates/control` | the view of the cluster, the next write, and its reason | `api`, `engine`, `jobs`, `lease`, `quantity` |\n',
         '| `crates/cache` | the view of the cluster, and its translation for the engine | OURS_cache |\n'
         '| `crates/reconcile` | the decision about each object: the next write, and its reason | OURS_reconcile |\n'
         '| `crates/control` | the controller: observations and outcomes in, tasks out | OURS_control |\n')
    text = read(page)
    for name, names in SHIPPED.items():
        listed = sorted(one.removeprefix('berth_') for one in names if one.startswith('berth_'))
        text = text.replace(f'OURS_{name}', ', '.join(f'`{one}`' for one in listed))
    write(page, text)
    edit(page, '`make unit` runs the unit tests of a crate that has a library: `api`, `cli`, `configuration`, `control`, `engine`, `invariants`, `jobs`, `lease`,\n'
         '`manager`, `quantity`, `runtime`, `testkit`, `testrun`, `webhook`.',
         '`make unit` runs the unit tests of a crate that has a library: `api`, `cache`, `cli`, `configuration`, `control`, `engine`, `invariants`, `jobs`,\n'
         '`lease`, `manager`, `quantity`, `reconcile`, `runtime`, `testkit`, `testrun`, `webhook`.')
    edit(page, '`quantity`, `api`, `engine`, `jobs`, `lease`, `control` and `invariants` are pure:', '`quantity`, `api`, `engine`, `jobs`, `lease`, `cache`, `reconcile`, `control` and `invariants` are pure:')
    edit(page, 'are pure: they have no clock, no I/O, no async and no randomness; time is an\nargument. [docs', 'are pure: they have no clock, no I/O, no\nasync and no randomness; time is an argument. [docs')
    edit(page, '`resource` and `name` (`write/resource.rs`),', '`resource` and `name` (`cache/src/object/resource.rs`),')
    edit(page, '   `by_kind` (`controller/decide.rs`);', '   `by_kind` (`reconcile/src/decide.rs`);')
    edit(page, '   `controller/decide.rs` calls them).', '   `reconcile/src/decide.rs` calls them).')
    edit(page, '`uid_of` (`cache/identities.rs`).', '`uid_of` (`cache/src/identities.rs`).')
    edit(page, '| `unaware.rs` | in `engine` and `control`:', '| `unaware.rs` | in `engine`, `cache`, `reconcile` and `control`:')
    edit(page, 'that `control` writes as text or the engine returns,', 'that `cache`, `reconcile` or `control` writes as text or the engine returns,')
    edit(page, 'in the module of `crates/control/src` that decides about the object', 'in the module of `crates/reconcile/src` that decides about the object')
    edit('README.md', '| code that handles a Job | `crates/jobs`, then `crates/control` |', '| code that handles a Job | `crates/jobs`, then `crates/reconcile` |')
    edit('docs/glossary.md', '| owner of state | a type of `control` that', '| owner of state | a type of `cache` or `reconcile` that')
    write('docs/decisions/0004-three-crates-of-control.md', DECISION)
    index = 'docs/decisions/README.md'
    text = read(index).rstrip('\n') + '\n| 4 | 2026-11-30 | [Cache, decisions and controller are three crates](0004-three-crates-of-control.md) |\n'
    write(index, text)


DECISION = '''# Cache, decisions and controller are three crates

**Context**: `control` held the observed objects, the decisions about them and the controller that runs both. Inside one crate only a list of imports showed
that a decision does not name the controller.

**Choice**: three crates. `cache` has the observed objects and their translation for the engine, `reconcile` has the decisions and the state that they read,
`control` has the controller and its facade.

Four parts lie elsewhere than a strict cut between observing, deciding and running would have them:

- `cache` knows the model of the engine. The view keeps the pod sets of a Workload as shapes in the form in which the engine takes them, because a cluster has
  many Workloads with few shapes. The cache holds no world of the engine, and asks for no plan.
- `reconcile` has the types of the state that a decision reads: writes under way, plans, the work queue, reports, notes. `Context` has references to them.
  Their only instance is in the controller.
- `reconcile` has the functions that take an observation in (`observe`). They change the view and the state that depends on it, and the unit tests of decisions
  fill the state through them. A fixture in the controller's crate would be out of reach of these tests.
- The controller keeps the name `berth-control`. Its facade hands on the modules `write`, `event`, `settings`, `measure`, `surroundings`, `feature_gates` and
  `autoscaler`, so that runtime, manager and tests name one crate.

**Alternatives**: one crate with private modules, as before (a list of imports is easier to break than a manifest); a fourth crate for the state (each
decision would still see all of it).

**Consequences**: an edit of a decision compiles `reconcile` and `control` again, and `cache` not at all. A declaration of `cache` or `reconcile` is public only
where a crate above uses it, so that the compiler still finds dead code.
'''

SHIPPED = {}


def edits():
    global SHIPPED
    sources()
    SHIPPED = manifests()
    paths_in_texts()
    tools(SHIPPED)
    pages()
    git('add', '-A', '-N')
    if not os.environ.get('SPLIT_NO_CARGO'):
        for command in (['cargo', 'update', '--workspace', '--offline'], ['cargo', 'fmt', '--all']):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                problems.append(f'{" ".join(command)}: {done.stderr[-2000:]}')


def main():
    phase = sys.argv[1] if len(sys.argv) > 1 else 'all'
    if phase in ('all', 'moves'):
        if git('status', '--porcelain').strip():
            sys.exit('the checkout is not clean')
        moves()
    if phase in ('all', 'edits'):
        edits()
    print(f'{count["exact"]} exact-match edits, {len(problems)} problems')
    for problem in problems:
        print(f'PROBLEM {problem}')
    sys.exit(1 if problems else 0)


main()
