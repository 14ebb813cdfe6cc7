"""Downloads of the report: what a button saves."""

import base64


def downloads(page, button):
    """Click a download button; return the name of the file and its content."""
    page.js("""
      window.saved = null;
      const create = URL.createObjectURL;
      URL.createObjectURL = (blob) => { window.blob = blob; return create.call(URL, blob); };
      HTMLAnchorElement.prototype.click = function () {
        const reader = new FileReader();
        reader.onload = () => { window.saved = [this.download, reader.result.split(',')[1]]; };
        reader.readAsDataURL(window.blob);
      };""")
    page.js("arguments[0].click()", button)
    page.until("window.saved")
    name, content = page.js("return window.saved")
    return name, base64.b64decode(content)
