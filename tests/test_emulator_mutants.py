"""The emulator catches what it is for: of every kernel, each barrier, fence and mask is broken, one at a time.

A mutant is a kernel file with one place changed; the emulator compiles it instead of the real one (its `overlay`). It
is caught if, for some kernel that comes to the place, a rule is broken or a result is wrong. Places are found by
reading the files, so that a new barrier is broken too. A run takes one in 300 of them, drawn anew each time, and has
a minute for each (GPR_TEST_ALL=1: all, as long as it takes). What no kernel would miss does not belong there: see
UNMISSED.
"""

from __future__ import annotations

import math
import os
import random
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import emu
import pytest
from emu.cases import FULL
from emu.layouts import ABOUT, MADE_FOR

import gpureduce as gr
from gpureduce import _core

SEED = int(os.environ["GPR_TEST_SEED"])
ONE_IN = 1 if os.environ.get("GPR_TEST_ALL") else 300  # mutants are tried in a run, others in another
PATIENCE = math.inf if os.environ.get("GPR_TEST_ALL") else 60.0  # seconds for a mutant, which is left undecided then
ENDS_SOON = 5.0  # seconds, after which a trial's time is compared with that of the kernels as they are
SOURCES = {name: text for name, text in _core.sources().items() if name.endswith(".cuh") and name != "cub.cuh"}
KERNELS = {info.name: info for info in gr.kernels() if info.name not in ("cub", "auto")}
HALF_WARP = "0xffffu << (threadIdx.x & 16)"

# What is changed, and into what: everything that threads do together, one place at a time.
TOGETHER = [
    (r"__syncthreads\(\);", ";"),
    (r"__syncwarp\(\);", ";"),
    (r"__syncwarp\(\);", f"__syncwarp({HALF_WARP});"),
    (r"__threadfence\(\);", ";"),
    (r"\ball_lanes(?=,)", "(all_lanes >> 1)"),
    (r"\ball_lanes(?=,)", f"({HALF_WARP})"),
    (r"__syncthreads_and\(is_held\)", "(__syncthreads(), is_held)"),
    (r"__syncthreads_and\(", "__all_sync(all_lanes, "),
    (r"__syncthreads_or\(has_digits\)", "(__syncthreads(), has_digits)"),
    (r"__syncthreads_or\(", "__any_sync(all_lanes, "),
    (r"atomicAdd\(ticket", "[](unsigned *p, unsigned x) { return (*p += x) - x; }(ticket"),
]
# Slips of the pen: bounds, offsets, who works.
SLIPS = [
    (r"(?<=\bs )> 0(?=;)", "> 1"),
    (r"(?<=\bs )> 32(?=;)", "> 64"),
    (r"(?<=\bs )>= 32(?=;)", ">= 64"),
    (r"(?<=tid )< s\b", "<= s"),
    (r"(?<=lane )< s\b", "< s / 2"),
    (r"(?<=left )< BLOCK", "<= BLOCK"),
    (r"(?<=\bi )< n \?", "<= n ?"),
    (r"(?<=\bi )< row\.n", "<= row.n"),
    (r"tid \+ s\b", "tid + s + 1"),
    (r"lane \+ s\b", "lane + s + 1"),
    (r"i \+ BLOCK", "i + BLOCK + 1"),
    (r"(?<=s = )BLOCK / 2", "BLOCK / 4"),
    (r"(?<=value\[)first \+ k(?=\];)", "k"),
    (r"(?<=partial\[)k \* BLOCK \+ slot(?=\] =)", "slot"),
    (r"lane == 0", "lane != 0"),
    (r"row\.blocks - 1", "row.blocks - 2"),
    (r"(?<== )blocks - 1", "blocks - 2"),
    (r"(?<=half = )\(left \+ 1\) / 2", "left / 2"),
    (r"(?<=half )< left", "<= left"),
    (r"(?<=r\.y )== 0", "== 1"),
    (r"(?<=\bu )< there", "<= there"),
    (r"(?<=left |aken )>= under_way", ">= under_way - 1"),
    (r"(?<=\btaken )< steps", "< steps - 1"),
    (r"(?<=step )< items", "<= items"),
    (r"(?<=\bi )< head", "<= head"),
    (r"(?<=head )\+ items \* item", "+ items * item - 1"),
    (r"(?<=row\.block )== 0", "== 1"),
    (r"(?<=< )layout\.count", "layout.count - 1"),
    (r"(?<=count - first )>= item", ">= item - 1"),
    (r"(?<=most_adds = )1024", "4096"),
    (r"(?<=window_step = )42", "44"),
    (r"(?<=wide_step = )47", "50"),
    (r"(?<=top - )least_headroom", "(least_headroom - 5)"),
    (r"(?<=top - )tile_headroom", "(tile_headroom - 3)"),
    (r"\(\(upper \^ upper << 1\) & first_bit\) != 0", "true"),
    (r"(?<=p < )parts(?=; p\+\+\) has = )", "1"),
    (r"(?<=least_less >= )least(?=;)", "(least - 1)"),
    (r"(?<=digit_bits\) )/ digit_bits \+ 1", "/ digit_bits"),
    (r"(?<=pieces = )4", "3"),
    (r"(?<=digit_bits - 2\) )/ digit_bits \+ 1", "/ digit_bits"),
    (r"(?<=rest_depth = )54", "50"),
    (r"(?<=wide_product_top = )256 \+ 6", "256 + 2"),
    (r"(?<=top\(\) - )least_headroom", "(least_headroom - 5)"),
    (r"(?<=top\(\) - depth )\+ product_fraction<T>", "+ product_fraction<T> - 3"),
    (r"(?<=% 2 )!= 0(?=\) shift--)", "== 0"),
    (r"(?<=begin \+ threadIdx\.x; i < )end", "end - 1"),
    (r"(?<=lane )< head", "<= head"),
    (r"(?<=\(kept & 1\) )!= 0", "== 0"),
    (r"(?<=column )< layout\.column\.extent", "<= layout.column.extent"),
    (r"(?<=\bi )< count\b(?!\w| \*)", "<= count"),
    (r"(?<=r\.x )< count", "<= count"),
    (r"(?<=warp )>= strip\.count", "> strip.count"),
    (r"(?<=strip\.count - warp )- 1\)", ")"),
    (r"(?<=bits == )rounded\(greatest\)", "bits"),
    (r"(?<=width = )2 \* rest \+ 1", "0"),
    (r"(?<=width = )word\[0\] << shift != 0 \? 1 : 0", "0"),
    (r"(?<=number\.width )\+ \(lower\.low != 0 \? 1 : 0\)", ""),
    (r"(?<=root\.width != 0 \? )2 \* root\.width \+ 1", "0"),
    (r"\+ \(is_cut \? 1 : 0\)", ""),
    (r"(?<=used\.first )>= last", ">= last - 1"),
    (r"is_below\(from->least, most\)", "false"),
    (r"(?<=numerator\.width )== 0\}", ">= 0}"),
    (r"(?<=row, )layout\.across(?= \* Words::all)", "strip.count"),
    (r"(?<=\(c \+ 1\) )\* Words::all", "* Words::all - 1"),
    (r"(?<=row\.index )\* layout\.across", "* (layout.across - 1)"),
    (r"(?<=\(COUNT - 1 - i\) )\* STEP", "* (STEP - 1)"),
    (r"(?<=key )!= 0 \|\| !is_empty\(\)", "!= 0"),
    (r"(?<=index )- threadIdx\.x % warp_lanes / lanes", ""),
    (r"(?<=lane )== 0\) Cell", "!= 0) Cell"),
    (r"(?<=place\(\) )\+ reach \+ 1", "+ reach + 2"),
    (r"addend == 0 \?", "false ?"),
    (r"low < addend", "false"),
    (r"(?<=pair_bits )- window_step\) \| low", "- window_step - 1) | low"),
    (r"(?<=mine\.top - )all\.top", "(all.top - 1)"),
    (r"(?<=b )< blocks \?", "<= blocks ?"),
    (r"value = Cell::identity\(\);", "value = Cell::lift(typename Cell::In{3}, 0);"),
    (r"(?<=\(i\) )\* kept\[a\](?=;)", "* 1"),
    (r"(?<=\(place\) )\* column", "* 0"),
    (r"(?<=row, )column \+ k( \+ j)?", "column"),
    (r"(?<=ending\.of\(layout, )row\.index", "0"),
    (r"(?<=ending\.of\(layout, )first \+ r", "r"),
    (r"(?<=elements, ending\.of\(layout, )(index|i)\b", "0"),
    (r"(?<=ending, )group", "0"),
    (r"(?<=ending, 0, )first", "0"),
    # Windows of a tile, and what is held
    (r"(?<=ADDS <= 8 \? )5 : 6", "4 : 5"),
    (r"(?<=near_windows<T> == 1 \? )18", "6"),
    (r"\(needed \+ step - 1\)(?= / step \* step;\n        return is_always_near)", "needed"),
    (r"(?<=is_always_near<T> )\|\| top < least \?", "?"),
    (r"(?<=static_cast<int>\(count - 1\) \* window_step)(?=;\n)", " - 1"),
    (r"field_of_key<T>\(key\) != last_field<T> && (?=\()", ""),
    (r"this->top <= highest_field<T> - moved", "true"),
    (r"(?<=this->top )\+ moved(?= \+)", ""),
    (r"(?<=near_windows<T> )- count(?=\))", "- count - 1"),
    (r"(?<=this->top )- least \+ 1", "- least"),
    (r"(?<=<< key_fraction<T>\) )- 1(?= : 0)", "- 2"),
    (r"(?<=lowest )> 1(?= .*key_fraction<T>)", "> 4"),
    (r"(?<=are_held )&& largest != 0", ""),
    (r"are_held && (?=largest)", ""),
    (r"&& windows\.has_place_for\(largest\)", ""),
    (r"\(upper_bits\(x\[j\]\) & ~sign_bit\) \| (?=lower)", ""),
    (r"(?<=~sign_bit\) )\| lower_bits\(x\[j\]\)", ""),
    (r"(?<=i / Adder::per_vector )>= used", ">= used - 1"),
    (r"(?<=number\[0\]\[)above \+ w", "w"),
    (r"(?<=held->flags = )saw_not_minus_zero", "0"),
    (r"warp_max\(found\.largest\)", "shuffle_from(found.largest, 0)"),
    (r"mine\.has\(1\)", "false"),
    (r"beyond \|= static_cast<uint64>\(number\[p\]\[0\]\);", ""),
    (r"(?<=most_shift = )window_step - 2", "window_step + 2"),
    (r"(?<=fits = )shift == by(?=;)", "true"),
    (r"(?<=if \()top != other\.top \|\| (?=!is_small)", ""),
    (r"(?<=kept = window_step )- shift", "- shift - 1"),
    (r"(?<=unsigned w = numbers - 1; w )> 0", "> 1"),
    (r"(?<=<< shift\) )\+ carried", ""),
    (r"(?<=carried = )whole >> kept", "0"),
    (r"(?<=(?:mine|ther)\.top )- lower", "- lower - 1"),
    (r"\|\| !fits(?=\) return Joined)", ""),
    (r"(?<=flags )\|= other\.flags", "= other.flags"),
    (r"(?<=is_upper \? )half_bits(?= : 0)", "half_bits - 1"),
    (r"all\.clear\(\);", ""),
    (r"all\.flags \|?= (?:saw_digits \| \(all\.flags & saw_alone\)|left_flags);", ""),
    (r"(?<=all\.flags = )warp_or\(mine\.flags\)", "mine.flags"),
    (r"\(mine\.top == all\.top \|\| mine\.is_zero\(\)\)", "true"),
    (r"(?<=if \()has_first", "false"),
    (r"(?<=number\[p\]\[0\]\) )<< window_step", "<< (window_step - 1)"),
    (r"!all\.has\(0\)", "true"),
    # Two numbers
    (r"lost \|= (?=magnitude\(lower\.rest\);)", "lost = "),
    (r"lost \|= (?=magnitude\(lower\.rest\) \|)", "lost = "),
    (r"(?<=return )lost == 0 && ", ""),
    (r"&& magnitude\(second\) < infinity", ""),
    (r"second == 0 \? first : (?=first \+)", ""),
    (r"second == 0 \? first : (?=two)", ""),
    (r"second == 0 \? Out\(first\) : ", ""),
    (r"bits % 2 != 0(?=\) return x)", "false"),
    (r"\(a - of_a\) \+ ", ""),
    (r"put_few<Cell, (?:FewNumbers<Cell>|double), row_elements>(?=\()", "true || put_few<Cell, double, row_elements>"),
    (r"(?<=second = )rest == 0 \? nearest : made_odd\(nearest, rest\)", "nearest"),
    (r"(?<=second = )rest == 0 \? nearest : made_odd", "made_odd"),
    (r"(?<=multiply_add\(-quotient, count, two\.sum\), )two\.rest", "0"),
    (r"(?<=multiply_add\(-nearest, count, left\.sum\)) \+ left\.rest", ""),
    (r"return magnitude\(quotient\) >= least", "return true"),
    (r"if \(x == 0\) return bit_copy<F>\(.*", ""),
    (r"\(rest < 0\) == \(x < 0\)(?= \? bits)", "true"),
    (r"(?<=BLOCK / lanes )\* per_thread(?=\) \+ threadIdx)", ""),
    (r"(?<=first \+ r )\* \(BLOCK", "* 0 * (BLOCK"),
    (r"first - threadIdx\.x \+ groups \* per_thread <= layout\.count", "true"),
    (r"(?<=layout\.row\(index \+ r )\* STEP", "* 0"),
    # What windows do not hold
    (r"(?<=near\[p\] = )grown\.windows\.of\[p\](?=;\n        is_placed)", "near[p]"),
    (r"elsewhere \|= found\.elsewhere;", ""),
    (r"team\.any_of\(found\.elsewhere \| \(Cell::skips_nan \? saw_digits : 0\)\)", "found.elsewhere"),
    (r"found\.elsewhere \|= saw_digits;", ""),
    (r"found->elsewhere \|= saw_specials;", ""),
    (r"if \(!windows\.has_room\(\) \|\| !is_near\(windows, magnitudes_of<T>\(alone\)\)\) return false;", ""),
    (r"!windows\.has_room\(\) \|\| ", ""),
    (r"left_range != 0 \|\| (?=rest != 0)", ""),
    (r"(?<=left_range != 0) \|\| rest != 0", ""),
    (r"add_digits\(total\.digit\[p\], x\);", ""),
    (r"if \(!holds\(windows\.of, asked\)\) return false;", ""),
    (r"if \(!fit\.holds\(grown\.of\)\) return false;", ""),
    (r"found->others \|= others_of\(vector\);", ""),
    (r"held\.flags = adder\.elsewhere;", ""),
    (r"(?<=all = )leave_apart\(sum, all, totals\)", "leave_apart(sum, all, nullptr)"),
    (r"all = leave_apart\(sum, all, nullptr\);", "(void)0;"),
    # One element that windows do not hold
    (r"(?<=\+ p, 0ull, bits\) )== 0\) return saw_alone", "== 0) return saw_digits"),
    (r"(?<=\+ p, 0ull, bits\) )== 0", "!= 0"),
    (r"sizeof\(BlockSums<In, NUMBERS>\)", "NUMBERS * sizeof(BlockSum<In>)"),
    (r"(?<=is_added = )bits != 0 && atomicCAS", "bits != 0 && false && atomicCAS"),
    (r"if \(is_added\) add_digits\(sum\.digit\[p\], number_alone<In>\(p\)\);", ""),
    (r"\*alone_among<In>\(counters, p\) = 0;", ""),
    (r"RunTeam::alone<In>\(\)\[p\] = \*alone_among<In>\(counters, p\);", ""),
    (r"(?<=saw_digits )\| \((?:all|now)\.flags & saw_alone\)", ""),
    (r"\(held\.flags & saw_alone\) != 0 && (?=leave_alone)", "false && "),
    (r"(?<=\(all\.flags & saw_alone\) )!= 0(?= && p)", "!= 0 && false"),
    (r"(?<=ANY && \(all\.flags & saw_alone\) )!= 0", "!= 0 && false"),
    (r"(?<=unit )- 2 \+ offset", "+ offset"),
    (r"(?<=distance % STEP )\+ 2", "+ 1"),
    (r"(?<=highest = static_cast<int>\(far_numbers\) )- 2", "- 1"),
    (r"(?<=of_one == 1 \? )upper", "0"),
    (r"(?<=significand << 1 )>> \(STEP \+ 1 - shift\)", ">> (STEP - shift)"),
    (r"(?<=unit = )sign_of_sum != 0 \? sum\.unit : place", "sum.unit"),
    (r"(?<=all\.unit = )unit - moved \* STEP", "unit"),
    (r"(?<=far_numbers - 1\] = )sign_of_sum", "0"),
    (r"(?<=far_numbers - 1\] = )significand != 0 \? sign_of_one : 0", "0"),
    (r"(?<=significand != 0 \? )sign_of_one", "1"),
    (r"first < 0 \? -1 : (?=first != 0)", ""),
    (r"first != 0 \|\| second != 0 \|\| (?=has_rest)", ""),
    (r"\|\| has_rest(?= \? 1 : 0; \})", ""),
    # What is kept of full windows
    (r"keep\(team, windows\(\), times\);", ""),
    (r"(?<=most_kept == 0 \? number\[w\] : )kept \+ number", "number"),
    (r"(?<=adds = )\(times % most_kept \+ 1\) << kept_shift", "0"),
    (r"elsewhere \|= times == most_kept \? saw_digits : 0;", ""),
    (r"if \(times == most_kept\) close_kept\(team, windows\.of\[0\]\.top\);", ""),
    (r"if \(times > 0\) close_kept\(team, windows\.of\[0\]\.top\);", ""),
    (r"(?<=number )>> half_bits(?=\};)", ">> (half_bits - 1)"),
    (r"(?<=\{place, place )\+ half_bits", "+ half_bits - 1"),
    (r"(?<=\[w \+ 1\] )\+=(?= Team::template kept)", "="),
    (r"with_kept<Team>\(held\)(?= : held)", "held"),
    (r"if \(adds != 0\) empty\(\);(?=\n        begin)", ""),
    (r"(?<=if \()adds != 0(?=\) empty\(\);)", "is_placed"),
    (r"held\.take_flags\(sum\);", ""),
    (r"(?<=others != )\(1u << parts\) - 1", "0"),
    (r"sum\.digit\[p\]\[d\] = 0;", ""),
    (r"counters\[d\] = 0;", ""),
    (r"counters\[digits\] = 0;", ""),
    (r"(?<=warp_begin \+ first )< blocks", "< blocks - 1"),
    (r"fits \? Partial\{\} : now", "now"),
    (r"next = load\(threadIdx\.x \+ first \+ BLOCK\)", "next = Partial{}"),
    (r"adder\.leave_left_out\(\);", ""),
    (r"atomicAdd\(counters \+ digits_of<PartType<In>>, left_out\)", "(void)0"),
    (r"(?<=sum\.left_out = )counters\[digits\]", "0"),
    (r"(?<=\(all\.flags & saw_digits\) )== 0", ">= 0"),
    (r"\((?:held\.)?flags & saw_digits\) != 0(?=\) (?:leave|take)_number)", "false"),
    (r"(?<=place_at\(top, windows )- 1", "- 2"),
    (r"row\.blocks > 1(?=\) return false)", "false"),
    (r"(?<=row\.blocks )> warp_lanes", "> 2 * warp_lanes"),
    (r"sum\.number\[0\] == 0(?= \? round_quickly)", "true"),
    (r"(?<=others\.unit = )sum\.unit", "sum.unit + STEP"),
    # What the threads of a row across memory hold
    (r"(?<=Room::block )\+ threadIdx\.x", "+ threadIdx.x / 2"),
    (r"(?<=\? r\.y - )half", "half / 2"),
    (r"r\.x \* pairs \+ y", "r.x * pairs"),
    (r"(?<=y \* r\.across )\+ r\.x", ""),
    (r"(?<=gives = r\.y )>= half", "> half"),
    (r"(?<=takes = r\.y )< pairs", "< pairs - 1"),
    (r"add_own\(sum, (other|mine)\);", "(void)0;"),
    (r"mine\.flags \|= saw_digits;", ""),
    (r"(?<=b \+= )r\.down", "r.down + 1"),
    (r"next = load\(b \+ r\.down\)", "next = Held<In>{}"),
    (r"mine\.take_flags\(sum\);", ""),
    (r"is_left\[r\.x\] = has_digits;", "is_left[r.x] = false;"),
    (r"(?<=r\.x \* counters )\+ digits", ""),
    (r"(?<=row\.block \* step), layout\.across", ", 1"),
    (r"leave_number\(sums\[c\], totals \+ c \* counters\);", ""),
    (r"smaller\(r\.down, row\.blocks\)", "smaller(r.down, row.blocks - 1)"),
    (r"\(mine\.flags & saw_digits\) == 0 && (?=!mine\.has)", ""),
    (r"if \(left_out != 0\) counted = 0;", ""),
    (r"(?<=layout\.elements )- left_out", ""),
    (r"if \(totals != nullptr\) take_number\(sums\[c\], totals \+ c \* counters\);", ""),
    (r"(?<=left >= last )\+ warp_lanes", "+ warp_lanes - 1"),
    (r"(?<=k \* BLOCK )< left", "<= left"),
    (r"(?<=k \* warp_lanes\) )< left", "<= left"),
    (r"(?<=left )>= full", ">= full - warp_lanes"),
    (r"(?<=at \+ )k(?= \* warp_lanes\);)", "(k + 1)"),
    (r"left <= 0 && (?=has_edges\))", ""),
    (r"left > last(?= \? VECTORS)", "false"),
    (r"(?<=static_cast<unsigned>\(left\) )\+ BLOCK - 1", ""),
    (r"if \(used == VECTORS\) return;", ""),
    (r"(?<=k == used) \? edges", " - 1 ? edges"),
    (r"used\+\+;", ""),
    (r"has_edges = false;(?=\n    \})", ""),
    (r"&& !tile\.has_edges", ""),
    (r"(?<=k == )0(?= \? edges)", "1"),
    (r"(?<=tile\.edges, )tile\.has_edges", "false"),
    (r"(?<=row\.blocks\) \* \(vectors )\* BLOCK", "* BLOCK + 1"),
    (r"(?<=field_offset<dt_float32> \+ )128", "127"),
    (r"(?<=if constexpr \()QUICK(?=\) rest)", "false"),
    (r"(?<=return )e > deepest\(\) \? e : deepest\(\)", "e"),
    (r"(?<=row\.block == 0 )&& threadIdx\.x < warp_lanes", ""),
    (r"(?<=has_edges = )mine == 0 && ", ""),
]
# Mutants that are right all the same, by file, replacement and the comment at the place; and why the place is as it is.
UNMISSED = {
    ("single_warp.cuh", f"__syncwarp({HALF_WARP});", "the next step reads what this one wrote"): (
        "after the first step only the lower half works; a barrier of the whole warp is the plain thing to write"
    ),
    ("single_warp_ordered.cuh", f"__syncwarp({HALF_WARP});", "partials are there"): (
        "the first steps stay within the halves, and the whole warp meets after each of them"
    ),
    **{
        (file, new, comment): "the warp votes next, which orders what the emulator sees, and on a card no memory"
        for file, comment in (("exact_rows.cuh", "the sum is zero"), ("exact_block.cuh", "the sum is there"))
        for new in (";", f"__syncwarp({HALF_WARP});")
    },
    ("exact_held.cuh", f"__syncwarp({HALF_WARP});", "it can be read"): (
        "the lanes of the first half write it, and read it"
    ),
    **{
        ("exact_held.cuh", new, "what was added to it is there"): (
            "whoever calls has passed a barrier since anything was added; this is where it is needed"
        )
        for new in (";", f"__syncwarp({HALF_WARP});")
    },
    ("exact_walk.cuh", f"({HALF_WARP})", "who waits for each other"): (
        "halves of a warp that wait for their own are as right, and read memory in smaller pieces"
    ),
    ("exact_rows.cuh", f"({HALF_WARP})", "whoever has a place goes along"): (
        "only where there are thousands of rows do several of a warp have more than one tile"
    ),
}
# Words of lines that only extremes' positions come to.
OF_EXTREMES = ("best_of_warp", "? u : 0", "best of all warps", "first position", "items[0]", "taken")
# Words of lines that say where given means are.
OF_GIVEN_MEANS = ("ending.of(", "layout, ending, ", "(place) * column", "(i) * kept[a]")
# Folds of words that a card reduces over a warp by one instruction, and a cell of each.
REDUCED_WORDS = (
    ("fold_any", "int32", "any"),
    ("fold_all", "int32", "all"),
    ("fold_odd", "int32", "logical_xor"),
    ("fold_min", "uint32", "min"),
    ("fold_max", "uint32", "max"),
    ("fold_bit_and", "int32", "bitwise_and"),
    ("fold_bit_or", "int32", "bitwise_or"),
    ("fold_bit_xor", "int32", "bitwise_xor"),
)
# Cells in which a place is passed that most cells do not come to, by a word of its line.
CELLS = {
    **{f"redux({fold}, unsigned": [(dtype, op)] for fold, dtype, op in REDUCED_WORDS},
    "__reduce_": [
        *(("int32", op) for op in ("any", "all", "min", "max", "sum", "logical_xor")),
        *(("int32", op) for op in ("bitwise_and", "bitwise_or", "bitwise_xor")),
        *(("uint32", op) for op in ("min", "max")),
    ],
    "lift(": [("int32", "sum"), ("float64", "min"), ("int32", "argmax")],
    **{word: [("int32", "argmax"), ("float64", "argmin")] for word in OF_EXTREMES},
    **{word: [("float64", ABOUT)] for word in OF_GIVEN_MEANS},
    "": [("int32", "sum"), ("float64", "min"), ("float64", "mean")],
}


@dataclass
class Mutant:
    file: str
    line: int
    old: str
    new: str
    text: str

    @property
    def whole_line(self) -> str:
        return SOURCES[self.file].splitlines()[self.line - 1]

    @property
    def is_unmissed(self) -> bool:
        comment = self.whole_line.partition("// ")[2]
        return (self.file, self.new, comment) in UNMISSED

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old!r} -> {self.new!r}"


def code_only(text: str) -> str:
    """The text with its comments blanked out, so that places in it are places in the text."""
    return re.sub(r"//[^\n]*", lambda match: " " * len(match.group()), text)


def mutants(changes: list[tuple[str, str]]) -> Iterator[Mutant]:
    left = {pattern for pattern, _ in changes}
    for file, text in SOURCES.items():
        code = code_only(text)
        for pattern, new in changes:
            for match in re.finditer(pattern, code):
                left.discard(pattern)
                changed = text[: match.start()] + new + text[match.end() :]
                yield Mutant(file, text.count("\n", 0, match.start()) + 1, match.group(), new, changed)
    assert not left, f"what these would break is no longer there: {left}"


DEFINITION = re.compile(
    r"\b(?:GPR_DEVICE|GPR_CALLED|__global__)\b[^;{}]*?\b(?!__launch_bounds__)(\w+)\(|\bstruct (\w+)"
)


@dataclass
class Definition:
    """What a file has of a device function, or of a structure before its first member: overloads are one."""

    words: set[str]
    lines: set[int]


def definitions() -> dict[str, dict[str, Definition]]:
    """By name, and by the file that has it."""
    found: dict[str, dict[str, Definition]] = {}
    for file, text in SOURCES.items():
        code = code_only(text)
        starts = list(DEFINITION.finditer(code))
        for start, end in zip(starts, [*(each.start() for each in starts[1:]), len(code)], strict=True):
            one = found.setdefault(start.group(1) or start.group(2), {}).setdefault(file, Definition(set(), set()))
            one.words |= set(re.findall(r"\w+", code[start.end() : end]))
            first, last = (code.count("\n", 0, at) + 1 for at in (start.start(), end))
            one.lines |= set(range(first, last + 1))
    return found


def included() -> dict[str, set[str]]:
    """Each file, and those that it includes, and those that they do."""
    named = {file: set(re.findall(r'#include "(\w+\.cuh)"', text)) & set(SOURCES) for file, text in SOURCES.items()}
    found = {file: {file} for file in SOURCES}
    for _ in SOURCES:
        found = {file: some.union(*(named[one] for one in some)) for file, some in found.items()}
    return found


DEFINITIONS = definitions()
INCLUDED = included()
OF_PRODUCTS = ("exact_moments", "exact_moments_across", "exact_dot")


def file_of(entry: str) -> str:
    """The file that has a global function."""
    (file,) = (file for file in DEFINITIONS[entry] if re.search(rf"__global__[^;{{}}]*\b{entry}\(", SOURCES[file]))
    return file


def entries_of(name: str) -> list[str]:
    """Global functions that a kernel of the registry is launched with."""
    if name == "fast":
        return ["auto_stream", "auto_rows"]
    return [name, "fill_identity"] if "fill_identity" in SOURCES[file_of(name)] else [name]


# Kernels by what is tried, and the global functions that this comes to. What fast does with layouts is tried by kernel.
ENTRIES = {
    **{name: entries_of(name) for name in KERNELS},
    **{name: [name] for name in (*MADE_FOR, *OF_PRODUCTS)},
}


def lines_of(kernel: str) -> dict[tuple[str, int], int]:
    """Lines of the functions that a kernel may come to, and by how many calls at least. Functions of one name are told
    apart by their files.
    """
    lines: dict[tuple[str, int], int] = {}
    reached: set[str] = set()
    new, calls = list(ENTRIES[kernel]), 0
    files = set().union(*(INCLUDED[file_of(name)] for name in new))
    while new:
        reached.update(new)
        found = [(file, one) for name in new for file, one in DEFINITIONS[name].items() if file in files]
        for file, one in found:
            for line in one.lines:
                lines.setdefault((file, line), calls)
        words = set().union(*(one.words for _, one in found))
        new, calls = [word for word in words if word in DEFINITIONS and word not in reached], calls + 1
    return lines


LINES = {name: lines_of(name) for name in ENTRIES}


def kernels_of(mutant: Mutant) -> list[str]:
    """Kernels that may come to the place: the nearest first, and of those the ones that do least besides."""
    place = (mutant.file, mutant.line)
    users = [name for name in ENTRIES if place in LINES[name]]
    return sorted(users, key=lambda name: (LINES[name][place], len(LINES[name])))


def trials(mutant: Mutant, overlay: Path) -> Iterator[dict[str, object]]:
    """Runs that may catch a mutant, the likeliest first."""
    for kernel, dtype, block, what in what_to_try(mutant):
        yield {
            **what,
            "kernel": kernel,
            "dtype": dtype,
            "block": block,
            "seed": SEED,
            "emulator": {"overlay": str(overlay)},
            "over_broken": ENDS_SOON,
        }


# Rows of which each warp has one tile: their type, the block's size, and how many blocks a row has. Of more than 32 the
# last one's warps share the partials, of more than it has threads each takes several.
TILES = [
    ("float64", 64, [1, 3, 40]),
    ("float32", 256, [1, 1, 2]),
    ("bfloat16", 256, [1, 1, 2]),
    ("float64", 32, [70, 70, 33]),
    ("float16", 96, [1, 2]),
]

Trial = tuple[str, str, int, dict[str, object]]
"""Kernel, dtype, block size, and what to do with them."""

# Of these each warp has several tiles.
RUNS: list[Trial] = [
    ("exact", dtype, block, {"do": "exact_sums.check_runs", "count": 12, "limit": 300.0})
    for dtype, block in (("float64", 256), ("float32", 64), ("bfloat16", 256))
]
# Trials of exact sums that a file's mutants have first.
FIRST: dict[str, list[Trial]] = {
    "exact_adders.cuh": [("exact", "complex64", 0, {"do": "exact_sums.check_nothing_there", "limit": 300.0})],
    "exact_block.cuh": [("exact", "int64", 256, {"do": "exact_layouts.check_layouts", "count": 4})],
    "exact_run.cuh": RUNS,
    "exact_short.cuh": [("exact", "float64", 0, {"do": "exact_sums.check_alone", "count": 20, "limit": 300.0})],
    "exact_windows.cuh": [
        ("exact", "float64", 32, {"do": "exact_sums.check_exact", "count": 4, "fills": 4, "limit": 300.0})
    ],
}


def what_to_try(mutant: Mutant) -> Iterator[Trial]:
    """Trials of the cells that come to the place, and those of exact sums and products: these first in exact's own
    files, and where the nearest kernel is an exact one.

    An exact kernel's trials take long: first come those that the file is about.
    """
    kernels = kernels_of(mutant)
    cells, layouts = cells_to_try(mutant, kernels), exact_layouts_to_try(kernels)
    sums, products = exact_sums_to_try(kernels), products_to_try(kernels)
    variances = variances_to_try(kernels)
    if not mutant.file.startswith("exact") and not kernels[0].startswith("exact"):
        parts: list[Iterable[Trial]] = [cells, layouts, sums, products, variances]
    elif set(kernels) <= set(OF_PRODUCTS):
        parts = [products, variances] if kernels[0] == "exact_dot" else [variances, products]
    elif mutant.file == "exact_fixed.cuh":
        tried = (*sums, *layouts)
        parts = [((*cell, what | {"slow_float64": True}) for *cell, what in tried)]
    elif mutant.file == "exact_few.cuh":
        what = {"do": "exact_sums.check_few", "rows": 256, "sizes": 5, "many": False, "limit": 600.0}
        parts = [[("exact", dtype, 0, what) for dtype in ("float32", "bfloat16", "float64")]]
    elif mutant.file == "exact_columns.cuh":
        parts = [columns_to_try(), layouts, sums]
    elif mutant.file in ("exact_rows.cuh", "exact_across.cuh", "exact_walk.cuh"):
        parts = [layouts, sums, variances, products, cells]
    else:
        parts = [FIRST.get(mutant.file, []), sums, layouts, products, variances, cells]
    for part in parts:
        yield from part


def variances_to_try(kernels: list[str]) -> Iterator[Trial]:
    """Exact variances of every layout, if the kernel of those that are no runs comes to the place."""
    if "exact_moments_across" not in kernels:
        return
    for dtype in ("float64", "float32", "bfloat16"):
        yield "exact", dtype, 96, {"do": "exact_variances.check_kinds"}  # a hang is soon found
        yield "exact", dtype, 64, {"do": "exact_variances.check_layouts", "count": 4, "limit": 300.0}
    for dtype in ("float64", "complex128"):
        yield "exact", dtype, 32, {"do": "exact_variances.check_brackets", "limit": 300.0}
    for dtype in ("float64", "float32", "bfloat16"):
        yield "exact", dtype, 32, {"do": "exact_variances.check_digits", "stride": 2, "limit": 300.0}
    for dtype in ("complex128", "int64", "int8"):
        yield "exact", dtype, 256, {"do": "exact_variances.check_layouts", "count": 8, "limit": 300.0}


def products_to_try(kernels: list[str]) -> Iterator[Trial]:
    """Dot products and variances at the edges of windows, and beyond, if a kernel of theirs comes to the place."""
    if not set(OF_PRODUCTS) & set(kernels):
        return
    if "exact_dot" in kernels:
        for dtype in ("float32", "complex64", "int64"):
            yield "exact", dtype, 32, {"do": "exact_products.check_kinds", "limit": 300.0}
        for dtype in ("float64", "float32", "float16"):
            for block in (256, 32):  # one warp fills windows, which takes long
                yield "exact", dtype, block, {"do": "exact_products.check_dot", "count": 8}
    for dtype in ("float64", "float32", "bfloat16"):
        yield "exact", dtype, 32, {"do": "exact_products.check_edges", "stride": 1, "limit": 300.0}
    for dtype in ("float64", "float32", "float16"):
        for block in (256, 32):
            yield "exact", dtype, block, {"do": "exact_products.check_variances", "count": 8}
        yield "exact", dtype, 32, {"do": "exact_products.check_exponents", "stride": 3, "limit": 300.0}
    for dtype in ("float32", "int64", "complex64"):
        yield "exact", dtype, 32, {"do": "exact_products.check_variance_kinds", "limit": 300.0}


def cells_to_try(mutant: Mutant, kernels: list[str]) -> Iterator[Trial]:
    """Each kernel with the types and operators that come to the place."""
    cells = next(cells for word, cells in CELLS.items() if word in mutant.whole_line)
    if "auto_columns" in kernels:  # of its largest blocks a thread's columns go down in several steps
        yield "auto_columns", "float32", 1024, {"do": "layouts.check_made_for", "op": "var"}
        yield "auto_columns", "uint8", 1024, {"do": "layouts.check_made_for", "op": "max"}
    for kernel in (kernel for kernel in kernels if kernel not in OF_PRODUCTS):
        for dtype, op in cells:
            if op == ABOUT and (kernel not in MADE_FOR or kernel.startswith("exact")):
                continue
            for block in (32,) if kernel in KERNELS and KERNELS[kernel].block_rule == "32" else (256, 64):
                yield kernel, dtype, block, what_to_do(mutant, kernel, op)


def exact_layouts_to_try(kernels: list[str]) -> Iterator[Trial]:
    """Exact sums of every layout, if a kernel of theirs comes to the place."""
    if "exact_rows" in kernels or "exact_across" in kernels:
        for dtype in ("float32", "float64", "bfloat16"):
            yield "exact", dtype, 64, {"do": "exact_layouts.check_kinds"}
            yield "exact", dtype, 256, {"do": "exact_layouts.check_layouts", "count": 4}
        for dtype in ("float64", "float32"):
            yield "exact", dtype, 0, {"do": "exact_sums.check_rows"}
    if "exact_rows" in kernels:
        yield "exact", "float32", 0, {"do": "exact_sums.check_few", "rows": 64, "sizes": 4, "limit": 300.0}
    if "exact_across" in kernels:
        for dtype in ("float32", "float64"):
            yield "exact", dtype, 32, {"do": "exact_layouts.check_across", "stride": 8, "limit": 300.0}
        yield from columns_to_try()


def columns_to_try() -> Iterator[Trial]:
    """Exact sums of rows across memory."""
    for dtype, block in (("float32", 32), ("float64", 64), ("complex64", 32)):
        yield "exact", dtype, block, {"do": "exact_layouts.check_columns", "count": 6, "limit": 300.0}


def exact_sums_to_try(kernels: list[str]) -> Iterator[Trial]:
    """Exact sums of data at the edges of windows, and beyond, if their kernel comes to the place: rows of a tile for
    each warp first, which are quick.
    """
    if "exact" in kernels:
        for dtype, block, blocks in TILES:
            what = {"do": "exact_tiles.check_tiles", "blocks": blocks, "count": 6, "only_sums": True}
            yield "exact", dtype, block, what
        for dtype in ("float64", "float32"):
            yield "exact", dtype, 0, {"do": "exact_sums.check_alone", "count": 20, "limit": 300.0}
        yield from RUNS
        for dtype in ("float32", "float64", "bfloat16"):
            yield "exact", dtype, 32, {"do": "exact_sums.check_edges", "stride": 1}
        yield "exact", "float64", 32, {"do": "exact_sums.check_kept", "count": 2, "limit": 300.0}
        for dtype in ("float64", "bfloat16"):
            yield "exact", dtype, 0, {"do": "exact_sums.check_apart", "limit": 300.0}
        for dtype in ("float64", "float32", "float16"):
            for block in (32, 256):
                yield "exact", dtype, block, {"do": "exact_sums.check_exact", "count": 6}
        yield "exact", "float16", 0, {"do": "exact_sums.check_kept_to_the_end", "limit": 300.0}


def what_to_do(mutant: Mutant, kernel: str, op: str) -> dict[str, object]:
    """The part of a task that differs between kernels with names of their own and those of fast's for layouts, and
    where accumulators are filled.
    """
    if kernel in MADE_FOR:
        return {"do": "layouts.check_made_for", "op": op}
    what = {"do": "cases.check_case", "ops": [op], "sizes": [33, 5001, 300], "rows": [(33, 70), (3, 9), (1000, 2)]}
    fills = DEFINITIONS["fill_identity"]
    if mutant.file in fills and mutant.line in fills[mutant.file].lines:
        what["rows"] = [(33, 70), FULL]
    return what


def is_caught(mutant: Mutant, overlay: Path) -> bool:
    """Whether some trial goes wrong, or nobody has the patience for more; none that comes after it is made."""
    began = time.monotonic()
    for number, task in enumerate(trials(mutant, overlay), 1):
        if time.monotonic() - began > PATIENCE:
            print(f"{mutant}: not caught by {number - 1} trials, and others are left")
            return True
        answer = emu.do(task)
        assert "cannot compile" not in answer, f"{mutant} does not compile, {task['kernel']}: {answer}"
        if answer:
            print(f"{mutant}: caught by trial {number}, after {time.monotonic() - began:.1f} s")
            return True
    return False


def survivors(tmp_path: Path, changes: list[tuple[str, str]]) -> tuple[list[Mutant], int]:
    """Mutants of a run's share that nothing catches, and how many there are in all."""
    drawn = []
    count = 0
    draw = random.Random(SEED)
    for count, mutant in enumerate(mutants(changes), 1):
        assert kernels_of(mutant), f"{mutant}: no kernel is known to come there"
        if draw.randrange(ONE_IN) != 0 or mutant.is_unmissed:
            continue
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / mutant.file).write_text(mutant.text)
        drawn.append((mutant, folder))
    with ThreadPoolExecutor(emu.CORES) as pool:
        caught = list(pool.map(lambda each: is_caught(*each), drawn))
    return [mutant for (mutant, _), is_so in zip(drawn, caught, strict=True) if not is_so], count


def demand_all_caught(tmp_path: Path, changes: list[tuple[str, str]], least: int) -> None:
    escaped, count = survivors(tmp_path, changes)
    assert count >= least, f"only {count} places were found"
    assert not escaped, f"{len(escaped)} of {count} mutants are not caught:\n" + "\n".join(map(str, escaped))


@pytest.mark.long
def test_no_barrier_fence_or_mask_can_be_taken_away_unnoticed(tmp_path: Path) -> None:
    demand_all_caught(tmp_path, TOGETHER, 90)


@pytest.mark.long
def test_no_bound_or_offset_can_be_off_by_one_unnoticed(tmp_path: Path) -> None:
    demand_all_caught(tmp_path, SLIPS, 150)
