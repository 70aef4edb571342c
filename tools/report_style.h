// Style and script of the report page.
#pragma once

namespace lazuli::tools {

inline constexpr char kReportStyle[] = R"css(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--ink:#15181d;--soft:#5b6470;--line:#e1e5ea;--record:#2a78d6;--compile:#e0662f;
--run:#159a6c;--idle:#c9d2dc;--warn:#b3261e}
@media(prefers-color-scheme:dark){:root{--page:#12151a;--card:#1b1f26;--ink:#e8ebef;--soft:#98a2ae;--line:#2c323b;--record:#5b9df0;
--compile:#f0854f;--run:#2fbf8b;--idle:#3c4653;--warn:#ff8a80}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:24px;margin:0}h2{font-size:17px;margin:0 0 12px}
.sub{color:var(--soft);margin:2px 0 20px}.warn{color:var(--warn)}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin:0 0 18px;overflow-x:auto}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(230px,1fr));gap:12px;margin:0 0 18px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 16px}
.tile b{display:block;font-size:25px;line-height:1.25;font-weight:650;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:13px}.tile i{display:block;font-style:normal;color:var(--soft);font-size:12.5px}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;color:var(--soft);font-weight:550;border-bottom:1px solid var(--line);padding:4px 10px 6px 0;white-space:nowrap}
td{padding:5px 10px 5px 0;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
.site th:last-child,.site td:last-child{padding-left:18px}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th.n{text-align:right}
code{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:anywhere}
.site table{table-layout:fixed;min-width:900px}.site th:last-child{width:42%}.site th:nth-child(4){width:14%}
.site th:first-child{width:6%}td:not(.n),th:not(.n){padding-left:8px}td:first-child,th:first-child{padding-left:0}
.bar{background:var(--run);height:9px;border-radius:2px;display:block;min-width:1px;margin-top:7px}
.bar.c{background:var(--compile)}
.site{margin:0 0 18px}.site:last-child{margin:0}.site h3{font-size:14.5px;margin:0 0 6px;font-weight:600}
.badge{border:1px solid var(--warn);color:var(--warn);border-radius:9px;padding:0 8px;font-size:12px;font-weight:500;margin-left:6px;
white-space:nowrap}
svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font-size:12px}
.record{fill:var(--record)}.compile{fill:var(--compile)}.run{fill:var(--run)}.used{fill:var(--record)}.idle{fill:var(--idle)}
.grid{stroke:var(--line);stroke-width:1}.peak{stroke:var(--soft);stroke-dasharray:4 3}
.key{color:var(--soft);font-size:13px;margin:0 0 6px}.key i{display:inline-block;width:10px;height:10px;border-radius:2px;
margin:0 5px 0 12px}
.key i:first-child{margin-left:0}
details summary{cursor:pointer;color:var(--soft);font-size:13px;padding:4px 0}
th[data-sort]{cursor:pointer}
@media print{section,.tile{break-inside:avoid}}
)css";

// Sorts a table by the column whose head is clicked. The page is complete without it.
inline constexpr char kReportScript[] = R"js(
for(const head of document.querySelectorAll('table.sortable th')){head.dataset.sort='';head.title='sort';head.addEventListener('click',
()=>{
const column=[...head.parentNode.children].indexOf(head),body=head.closest('table').tBodies[0],up=head.dataset.sort==='up';
const key=row=>{const cell=row.cells[column];return cell.dataset.v===undefined?cell.textContent:Number(cell.dataset.v)};
head.dataset.sort=up?'down':'up';
body.append(...[...body.rows].sort((a,b)=>{const x=key(a),y=key(b),o=typeof x==='number'?y-x:x.localeCompare(y);return up?-o:o}))})}
document.documentElement.dataset.script='ran';
)js";

}  // namespace lazuli::tools
