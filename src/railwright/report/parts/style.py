"""The page's style: one accent, system fonts, light and dark, wide and narrow, screen and paper."""

from __future__ import annotations

LIGHT = """
--paper:#fff;--ink:#18212b;--soft:#56626e;--line:#dde3e8;--wash:#f4f6f8;--accent:#0b6570;--bad:#b3261e;
--s0:#0b6570;--s1:#a34700;--s2:#7b3fa0;--s3:#1f5fbf;--s4:#b3261e;--s5:#4d6b00;--s6:#8a2a66;--s7:#56626e;
--r0:#2b6cb0;--r1:#0f8b8d;--r2:#3f8f3f;--r3:#8f8a1d;--r4:#c9791a;--r5:#c8502f;--r6:#b03a79;--r7:#7352b3;
--compute:#7fa9c9;--attention:#a9c6dc;--backward:#5f8db3;--optimizer:#9aa7b3;
--tp:#e0a030;--ep:#d1603d;--cp:#b8a12c;--emb:#4f9d8f;--pp:#9a6bb8;--dp:#c98bb0;--host:#8794a0;--copy:#5f6f9e;--adam:#a8774e;--data:#7d9b3f;--idle:#eef1f3;--bubble:#d5dce2;--event:#0d151c;
--gain:#2f7fb8;--loss:#c8662b;--box:#fff;--edge:#8a96a2
""".replace("\n", "")

DARK = """
--paper:#11161b;--ink:#e6ebf0;--soft:#a2aeb9;--line:#2b343d;--wash:#182027;--accent:#5fc9d3;--bad:#ff8f85;
--s0:#5fc9d3;--s1:#f2a65a;--s2:#cfa2ec;--s3:#86b6ff;--s4:#ff8f85;--s5:#b4cf5f;--s6:#f09ccb;--s7:#a2aeb9;
--r0:#6ea8e6;--r1:#45bfc1;--r2:#78c478;--r3:#c9c455;--r4:#efab5c;--r5:#ee8a6c;--r6:#e07fb2;--r7:#ab8fe6;
--compute:#6f9fc6;--attention:#9cc0da;--backward:#5688b0;--optimizer:#8a97a3;
--tp:#d6992f;--ep:#d9714f;--cp:#bda83f;--emb:#5aac9d;--pp:#a57fc4;--dp:#bd7fa4;--host:#7d8892;--copy:#7f90c4;--adam:#c08d62;--data:#94b354;--idle:#222a32;--bubble:#3b4752;--event:#0b1015;
--gain:#5aa7dc;--loss:#e58a52;--box:#1a222a;--edge:#71808d
""".replace("\n", "")

PAGE = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--paper);color:var(--ink);
font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main,header,footer{max-width:62rem;margin:0 auto;padding:0 1.25rem}
header{padding-top:3.5rem}
h1,h2,h3{line-height:1.25;text-wrap:balance;font-weight:650;letter-spacing:-.01em}
h1{font-size:clamp(1.6rem,4.5vw,2.3rem);margin:.3rem 0 .8rem}
h2{font-size:1.35rem;margin:4rem 0 .6rem;padding-top:1.1rem;border-top:1px solid var(--line)}
h3{font-size:1.02rem;margin:2.2rem 0 .4rem}
p{margin:.5rem 0;max-width:44rem}
p,li{overflow-wrap:break-word}
a{color:var(--accent)}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.84em}
pre{overflow:auto;background:var(--wash);padding:1rem;border-radius:6px;max-height:30rem}
.copy{user-select:all}
.made{color:var(--accent);font-weight:600;font-size:.85rem;margin:0}
.question{font-size:1.12rem;color:var(--soft)}
.answer{margin:2rem 0;padding-left:1.2rem;border-left:3px solid var(--accent)}
.answer p{font-size:1.1rem;margin:.55rem 0}
.answer p:first-child{font-weight:600}
.soft,figcaption,.note{color:var(--soft);font-size:.9rem}
.bad{color:var(--bad)}
nav{margin:1.5rem 0 0;font-size:.9rem;line-height:2}
nav a{margin-right:1.1rem;text-decoration:none;white-space:nowrap}
nav a:hover{text-decoration:underline}
dl.keys{display:grid;
grid-template-columns:repeat(auto-fit,minmax(9.2rem,1fr));gap:1.4rem 1.2rem;margin:2rem 0}
.whose{margin:2rem 0 0}.whose+dl.keys{margin-top:.9rem}
dl.keys div{display:flex;flex-direction:column-reverse;justify-content:flex-end}
dl.keys dt{color:var(--soft);font-size:.86rem;line-height:1.35}
dl.keys small{display:block;font-size:.8rem}
dl.keys dd{margin:0;font-size:1.55rem;font-weight:600;letter-spacing:-.02em;
font-variant-numeric:tabular-nums;line-height:1.3}
.scroll{overflow-x:auto;margin:1rem 0;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);font-size:.86rem;padding:.2rem 0 .5rem;caption-side:top}
th,td{padding:.42rem .9rem .42rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
th:last-child,td:last-child{padding-right:0}
thead th{vertical-align:bottom;font-weight:600;font-size:.84rem;line-height:1.35}
tbody th{font-weight:400}
tr.part th{padding-top:1.2rem;font-weight:600;color:var(--soft);font-size:.82rem}
.n{text-align:right;white-space:nowrap}
thead th.n{white-space:normal}
table .soft{font-size:inherit}
.t{min-width:12rem}
caption span{display:inline-block;position:sticky;left:0;max-width:min(44rem,calc(100vw - 2.5rem))}
.compare{table-layout:fixed}
.compare thead th:first-child{width:11.5rem}
.compare thead th{overflow-wrap:break-word;vertical-align:top}
tbody th{min-width:8.5rem}
.stick tbody th,.stick thead th:first-child{position:sticky;left:0;background:var(--paper)}
td.best{font-weight:650}
.badge{display:inline-block;min-width:1.45em;padding:0 .3em;border-radius:4px;border:1.5px solid currentColor;
font-size:.8rem;font-weight:700;line-height:1.45;text-align:center;margin-right:.45em}
.badge.s0,.name.s0{color:var(--s0);fill:var(--s0)}.badge.s1,.name.s1{color:var(--s1);fill:var(--s1)}
.badge.s2,.name.s2{color:var(--s2);fill:var(--s2)}.badge.s3,.name.s3{color:var(--s3);fill:var(--s3)}
.badge.s4,.name.s4{color:var(--s4);fill:var(--s4)}.badge.s5,.name.s5{color:var(--s5);fill:var(--s5)}
.badge.s6,.name.s6{color:var(--s6);fill:var(--s6)}.badge.s7,.name.s7{color:var(--s7);fill:var(--s7)}
details{margin:.7rem 0}
summary{cursor:pointer;color:var(--accent);font-weight:500}
p.variant{border-top:1px solid var(--line);padding:.85rem 0;margin:0;max-width:none}
p.variant .soft{margin-left:.6em}
details.variant{border-top:1px solid var(--line);padding:.35rem 0;margin:0}
details.variant>summary{color:var(--ink);font-weight:600;padding:.5rem 0}
details.variant>summary .soft{font-weight:400;margin-left:.6em}
figure{margin:1.2rem 0}
.key{display:flex;flex-wrap:wrap;
gap:.3rem 1.2rem;font-size:.86rem;color:var(--soft);margin:.6rem 0;padding:0;list-style:none}
.swatch{display:inline-block;width:1.1em;height:.75em;border-radius:2px;margin-right:.45em;vertical-align:baseline}
.bars{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:.25rem .8rem;margin:1rem 0}
.bars .who{grid-column:1/-1;margin-top:.7rem;font-size:.92rem}
.bars .value{text-align:right;font-variant-numeric:tabular-nums;font-weight:600;min-width:4.6rem}
footer{color:var(--soft);font-size:.86rem;padding-bottom:4rem;margin-top:4rem}
.wrap{overflow-wrap:anywhere}
"""

DRAWINGS = """
svg{display:block;max-width:100%;font-family:inherit}
svg.chart{width:100%;height:auto;overflow:visible}
svg.narrow{display:none}
svg text{fill:var(--ink);font-size:12.5px}
svg .tick,svg .axis-name,svg .row-part,svg .lane-name{fill:var(--soft);font-size:12px}
svg .row-name{font-weight:600;font-size:13px}
svg .name{font-size:13px;font-weight:600}
svg .grid{stroke:var(--line);stroke-width:1}
svg .rule{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:3 3}
svg .curve{fill:none;stroke-linejoin:round}
svg .lead{fill:none;stroke-width:.8;opacity:.55}
svg .mark{stroke:var(--paper);stroke-width:1}
svg .mark:hover{stroke:var(--ink);stroke-width:2}
.curve.s0,.lead.s0{stroke:var(--s0)}.curve.s1,.lead.s1{stroke:var(--s1)}.curve.s2,.lead.s2{stroke:var(--s2)}
.curve.s3,.lead.s3{stroke:var(--s3)}.curve.s4,.lead.s4{stroke:var(--s4)}.curve.s5,.lead.s5{stroke:var(--s5)}
.curve.s6,.lead.s6{stroke:var(--s6)}.curve.s7,.lead.s7{stroke:var(--s7)}
.mark.s0{fill:var(--s0)}.mark.s1{fill:var(--s1)}.mark.s2{fill:var(--s2)}.mark.s3{fill:var(--s3)}
.mark.s4{fill:var(--s4)}.mark.s5{fill:var(--s5)}.mark.s6{fill:var(--s6)}.mark.s7{fill:var(--s7)}
svg.scatter{width:100%;max-width:40rem;height:auto}.scatter .rule.whole{stroke-dasharray:none}
.scatter .dots .mark{stroke-width:.5;opacity:.8}.scatter .mark.plain{fill:var(--soft)}
svg.bar{width:100%;height:1.35rem;background:var(--idle);border-radius:3px}
svg.bar.thin{height:.9rem}
.diverge{width:11rem}.diverge svg.bar{height:1rem;background:var(--wash);margin-top:.25rem}
.gain{fill:var(--gain)}.loss{fill:var(--loss)}.axis-mark{fill:var(--soft)}
.k-compute{fill:var(--compute);background:var(--compute)}.k-attention{fill:var(--attention);background:var(--attention)}
.k-backward{fill:var(--backward);background:var(--backward)}.k-optimizer{fill:var(--optimizer);background:var(--optimizer)}
.k-tp{fill:var(--tp);background:var(--tp)}.k-ep{fill:var(--ep);background:var(--ep)}
.k-cp{fill:var(--cp);background:var(--cp)}.k-emb{fill:var(--emb);background:var(--emb)}
.k-pp{fill:var(--pp);background:var(--pp)}.k-dp{fill:var(--dp);background:var(--dp)}
.k-host{fill:var(--host);background:var(--host)}.k-copy{fill:var(--copy);background:var(--copy)}.k-data{fill:var(--data);background:var(--data)}
.k-adam{fill:var(--adam);background:var(--adam)}
.k-bubble{fill:var(--bubble);background:var(--bubble)}
rect.k-bubble{stroke:var(--edge);stroke-width:.6;stroke-dasharray:2 2}
.swatch.k-bubble{outline:1px dashed var(--edge)}
.m0{fill:var(--r0);background:var(--r0)}.m1{fill:var(--r1);background:var(--r1)}.m2{fill:var(--r4);background:var(--r4)}
.m3{fill:var(--r7);background:var(--r7)}.m4{fill:var(--r6);background:var(--r6)}.m5{fill:var(--r3);background:var(--r3)}
.m6{fill:var(--r5);background:var(--r5)}.m7{fill:var(--r2);background:var(--r2)}
.m-rest{fill:var(--edge);background:var(--edge)}
svg.timeline .event{fill:var(--event);font-size:11px;pointer-events:none}
svg.timeline .k-bubble+.event{fill:var(--ink)}
svg.timeline .lane{fill:var(--wash)}
svg.timeline .coarse{fill:var(--paper);stroke:var(--edge);stroke-width:.6;stroke-dasharray:2 2}
svg.timeline,svg.fabric{width:100%;min-width:46rem;height:auto}
svg.site{max-width:none}svg.chart.whole{min-width:42rem}
svg.fabric .cables path{fill:none;stroke:var(--edge);opacity:.6}
svg.fabric .cables path:hover{opacity:1;stroke:var(--ink)}
svg.fabric .cables .r0{stroke:var(--r0)}
svg.fabric .cables .r1{stroke:var(--r1)}svg.fabric .cables .r2{stroke:var(--r2)}
svg.fabric .cables .r3{stroke:var(--r3)}
svg.fabric .cables .r4{stroke:var(--r4)}svg.fabric .cables .r5{stroke:var(--r5)}
svg.fabric .cables .r6{stroke:var(--r6)}svg.fabric .cables .r7{stroke:var(--r7)}
svg.fabric .cables .failed{stroke:var(--bad);stroke-dasharray:3 4;opacity:.75}
svg.fabric .cables .hurt,svg.fabric .cables .slow{stroke:var(--bad)}
.nic.r0{fill:var(--r0)}.nic.r1{fill:var(--r1)}.nic.r2{fill:var(--r2)}.nic.r3{fill:var(--r3)}
.nic.r4{fill:var(--r4)}.nic.r5{fill:var(--r5)}.nic.r6{fill:var(--r6)}.nic.r7{fill:var(--r7)}
svg.fabric .shape{fill:var(--box);stroke:var(--edge);stroke-width:1}
.rail.r0 .shape{stroke:var(--r0)}.rail.r1 .shape{stroke:var(--r1)}.rail.r2 .shape{stroke:var(--r2)}
.rail.r3 .shape{stroke:var(--r3)}.rail.r4 .shape{stroke:var(--r4)}.rail.r5 .shape{stroke:var(--r5)}
.rail.r6 .shape{stroke:var(--r6)}.rail.r7 .shape{stroke:var(--r7)}
svg.fabric .rail .shape{stroke-width:2}
svg.fabric .failed .shape,svg.fabric .slow .shape,svg.fabric .hurt .shape{stroke:var(--bad);stroke-width:2}
svg.fabric .slow .shape,svg.fabric .hurt .shape{stroke-dasharray:4 2}
svg.fabric .cross{stroke:var(--bad);stroke-width:1.6}
svg.fabric .slow .cross,svg.fabric .hurt .cross{display:none}
svg.fabric .unit{fill:var(--edge);opacity:.7}
svg.fabric .box-name{font-size:11px;fill:var(--soft)}
"""

NARROW = """
@media screen and (max-width:40rem){
header{padding-top:2rem}h2{margin-top:3rem}
svg.wide{display:none}svg.narrow{display:block}
dl.keys{grid-template-columns:repeat(2,minmax(0,1fr))}dl.keys dd{font-size:1.3rem}
.compare thead th:first-child{width:8rem}
.stack thead{display:none}
.stack,.stack caption,.stack tbody,.stack tr,.stack th,.stack td{display:block}
.stack tr{border-bottom:1px solid var(--line);padding:.6rem 0}
.stack th,.stack td{border:0;padding:.08rem 0;text-align:left;white-space:normal;min-width:0}
.stack tbody th{font-weight:600}
.stack td::before{content:attr(data-name) " ";color:var(--soft);font-size:.82rem;margin-right:.4em}
.stack td .diverge{width:100%}
}
"""

PRINT = """
@media print{
:root{LIGHT;color-scheme:light}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
@page{margin:13mm 14mm}
body{font-size:10pt;line-height:1.4}
main,header,footer{max-width:none;padding:0}
header{padding-top:0}nav,.screen{display:none}
h2{margin-top:1.2rem;padding-top:.6rem}h2,h3,caption,summary{break-after:avoid}
figure,tr,.keys,.answer,.bars>*{break-inside:avoid}
.scroll{overflow:visible;margin:.4rem 0}table{font-size:8.4pt;line-height:1.35}
th,td{padding:.18rem .5rem .18rem 0}
tr.part th{padding-top:.5rem}
.compare{min-width:0!important}tbody th,.t{min-width:0}tbody th{min-width:6.5rem}caption span{max-width:none}
svg.timeline,svg.fabric{min-width:0}svg.site{max-width:100%;height:auto}svg.chart.whole{min-width:0}
svg.chart{max-height:6.2cm}svg.fabric{max-height:7cm}svg.bar{height:.8rem}
h3{margin-top:1.2rem}figure{margin:.6rem 0}
pre{max-height:none;white-space:pre-wrap;font-size:7.5pt}
summary{list-style:none}summary::-webkit-details-marker{display:none}
.stick tbody th,.stick thead th:first-child{position:static}
}
"""


COLOURS = f":root{{{LIGHT};color-scheme:light dark}}\n@media (prefers-color-scheme:dark){{:root{{{DARK}}}}}"


def drawing_style() -> str:
    """The CSS of a drawing that stands alone."""
    return f"{COLOURS}svg{{background:var(--paper)}}{DRAWINGS}"


def stylesheet() -> str:
    """The whole CSS of the page."""
    return COLOURS + PAGE + DRAWINGS + NARROW + PRINT.replace("LIGHT", LIGHT)
