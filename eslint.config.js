// Rules for the explorer's JavaScript. `make lint` applies them.

import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  { rules: { eqeqeq: "error", "no-var": "error", "prefer-const": "error" } },
  {
    files: ["nearfar/server/explorer/*.js"],
    languageOptions: { globals: { ...globals.browser, Plotly: "readonly" } },
  },
];
