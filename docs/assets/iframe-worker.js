// Search in a folder of files: browsers start no worker from file://, so there one runs in a hidden frame instead.
// Material's offline plugin would fetch such a script from elsewhere; nothing here is fetched from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      window.addEventListener("message", (event) => {
        if (event.source === this.frame.contentWindow) {
          this.dispatchEvent(new MessageEvent("message", { data: event.data }));
        }
      });
      const inside = this.frame.contentWindow.document;
      inside.open();
      inside.write(`<html><body><script>
        postMessage = (data) => parent.postMessage(data, "*");
        importScripts = async (...urls) => {
          for (const url of urls) {
            await new Promise((resolve) => {
              const script = document.createElement("script");
              script.src = url;
              script.onload = resolve;
              document.head.append(script);
            });
          }
        };
      </script><script src="${url}"></script>`);
      inside.close();
      // opening a document drops what listened to the one before
      this.ready = new Promise((resolve) => (this.frame.contentWindow.onload = resolve));
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
