"""The page: its tabs, and what it looks like."""

import gradio as gr

from shotfit.apps.app.session import Session, told
from shotfit.apps.app.tabs.ask import AskTab
from shotfit.apps.app.tabs.fit import FitTab
from shotfit.apps.app.tabs.label import LabelTab
from shotfit.apps.app.tabs.pictures import PicturesTab
from shotfit.apps.app.tabs.result import ResultTab

TABS = (
    ("Pictures", PicturesTab),
    ("Fit", FitTab),
    ("Try", AskTab),
    ("Label", LabelTab),
    ("Result", ResultTab),
)

# Fonts of the computer: none is loaded.
FONTS = ("system-ui", "sans-serif"), ("ui-monospace", "monospace")

STYLE = """
:root { --ours: #0072b2; --soft: #6b7280; --line: #d1d5db; }
.dark { --ours: #56b4e9; --soft: #9ca3af; --line: #4b5563; }
.gradio-container { max-width: 70rem !important; margin: 0 auto !important; }
.said { margin: .25rem 0; }
table.classes { width: 100%; border-collapse: collapse; }
.gradio-container table.classes, .gradio-container table.classes * {
  border: 0 solid var(--line) !important; }
.gradio-container table.classes :is(th, td) { text-align: left; padding: .3rem .5rem;
  border-bottom-width: 1px !important; overflow-wrap: anywhere; }
.gradio-container table.classes :is(th, td):nth-child(2) { text-align: right; }
table.classes thead th { white-space: nowrap; }
.one-line { align-items: flex-end; flex-wrap: nowrap !important; }
.one-line > * { min-width: 0 !important; }
.one-line button { padding-left: .5rem !important; padding-right: .5rem !important; }
.one-line :is(input, textarea) { min-width: 0 !important; }
#answers .grid-container { grid-template-columns: repeat(3, minmax(0, 1fr)) !important; }
#class-gallery .grid-container { grid-template-columns: repeat(4, minmax(0, 1fr)) !important; }
:is(#class-gallery, #answers) .grid-wrap { min-height: 6rem !important; height: auto !important; }
ol.answers, ul.diagnoses { list-style: none; margin: 0; padding: 0; }
ol.answers li { display: grid; grid-template-columns: 8rem 1fr 3.6rem; gap: .6rem;
  align-items: center; padding: .15rem 0; }
ol.answers .name { overflow-wrap: anywhere; }
ol.answers .bar { background: var(--line); border-radius: 3px; overflow: hidden; }
ol.answers .bar span { display: block; height: .7rem; background: var(--ours); }
ol.answers .share { text-align: right; font-variant-numeric: tabular-nums; }
ul.diagnoses li { padding: .35rem .6rem; margin: .25rem 0; border-left: 3px solid var(--line); }
ul.diagnoses li.problems { border-color: #d55e00; }
.curves { display: flex; flex-wrap: wrap; gap: 1rem; }
.curves figure { margin: 0; flex: 1 1 18rem; max-width: 32rem; }
.curves figcaption { color: var(--soft); font-size: .9rem; }
.curves svg { width: 100%; height: auto; }
:is(#answers, #class-gallery) .caption-label { white-space: normal; max-width: 100%; }
#downloads :is(.label-clear-button, td:last-child button) { display: none; }
@media (max-width: 480px) {
  .gradio-container main { padding-left: .5rem !important; padding-right: .5rem !important; }
  .tab-container button { padding-left: .5rem !important; padding-right: .5rem !important; }
  :is(#answers, #class-gallery) .grid-container {
    grid-template-columns: repeat(2, minmax(0, 1fr)) !important; }
  ol.answers li { grid-template-columns: 6rem 1fr 3.6rem; }
}
#report iframe { width: 100%; height: 70rem; border: 1px solid var(--line); border-radius: 6px; }
"""


def theme() -> gr.themes.Base:
    """Quiet colours, and fonts that are there."""
    font, mono = FONTS
    quiet = gr.themes.Default(primary_hue="blue", font=list(font), font_mono=list(mono))
    # A hint is to be read too: Gradio's grey is too light for that on white.
    return quiet.set(block_info_text_color="*neutral_500")


def make_page(session: Session, first: str = "Pictures") -> gr.Blocks:
    """The page of a session, opened at the tab `first`."""
    with gr.Blocks(title="ShotFit", analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gr.HTML("<h1>ShotFit</h1>")
        with gr.Tabs(selected=first):
            for name, make in TABS:
                with gr.Tab(name, id=name) as tab:
                    made = make(session)
                tab.select(told(made.opened), None, made.outputs, queue=False)
                page.load(told(made.opened), None, made.outputs)
    return page
