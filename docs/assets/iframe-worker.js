// Browsers start no worker from file://, and the search is one. This runs its script in a hidden frame instead. The offline plugin
// of MkDocs Material would load such a script from a CDN.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = `<script>postMessage = message => parent.postMessage(message, "*")</script>
        <script src="${new URL(url, location)}"></script>`
      this.loaded = new Promise(done => this.frame.addEventListener("load", done))
      addEventListener("message", event => {
        if (event.source === this.frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      document.body.append(this.frame)
    }

    postMessage(message) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: message })))
    }
  }
}
