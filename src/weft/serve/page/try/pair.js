// The label of two texts together: does one follow from the other, do they say the same?

import { html } from "../lib/preact.js";
import { TextField } from "../parts.js";
import { t } from "../words.js";
import { labelColumns, LabelPanel, taskOption } from "./classify.js";
import { CUT } from "./row_runner.js";
import { pythonValue, weftCommand } from "./snippets.js";
import { useText } from "./work.js";

export default function Pair({ model, place }) {
  const [text, setText] = useText(place, "text", "pair.example");
  const [second, setSecond] = useText(place, "second", "pair.example2");
  const own = taskOption(model, "pair");
  const request = {
    path: "/v1/tasks/pair",
    body: { model: model.id, inputs: { text, text_pair: second } },
    library: () => `print(model.predict((${pythonValue(text)}, ${pythonValue(second)}), details=True${own.python}))`,
    command: () => weftCommand("predict", [text, second], `--details${own.shell}`),
  };
  const rows = {
    inputs: ["text", "second"],
    request: (items) => ({
      path: request.path,
      body: { model: model.id, inputs: items.map((one) => ({ text: one.text, text_pair: one.second })), ...CUT },
    }),
    columns: labelColumns(model),
  };
  return html`<${LabelPanel} name="pair" model=${model} place=${place} request=${request} rows=${rows}
    isReady=${text !== "" && second !== ""}>
    <div class="pair">
      <${TextField} label=${t("input.first")} value=${text} onChange=${setText} />
      <${TextField} label=${t("input.second")} value=${second} onChange=${setSecond} />
    </div>
  <//>`;
}
