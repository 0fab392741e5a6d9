// The page by which a browser is a member, as it is in Page/.
import CWebPage

/// The files of the page.
struct WebPage: Sendable {
    /// One of them.
    struct File: Equatable, Sendable {
        let mediaType: String
        let bytes: [UInt8]
    }

    /// Nothing is loaded or sent but from and to the relay itself, and no script or style stands in a document.
    static let contentSecurityPolicy =
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        + "media-src 'self' blob:; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    /// What the page uses of the machine, and what it does not. Bluetooth is not named: browsers without it complain.
    static let permissionsPolicy = "microphone=(self), screen-wake-lock=(self), camera=(), geolocation=()"

    private let files: [String: File]

    /// These files, by their names; the document is `index.html`.
    init(_ files: [String: [UInt8]]) {
        self.files = files.reduce(into: [:]) { result, file in
            let ending = file.key.split(separator: ".").last.map(String.init) ?? ""
            guard let mediaType = Self.mediaTypes[ending] else { return }
            result[file.key] = File(mediaType: mediaType, bytes: file.value)
        }
    }

    /// The file at a path: `/` is the document, `/page/NAME` any other one.
    func file(at path: String) -> File? {
        if path == "/" { return files["index.html"] }
        let prefix = "/page/"
        guard path.hasPrefix(prefix) else { return nil }
        return files[String(path.dropFirst(prefix.count))]
    }

    private static let mediaTypes = [
        "html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8",
        "json": "application/json", "svg": "image/svg+xml",
    ]
}

extension WebPage {
    /// Every file of Page/ by its name.
    static let builtIn: [String: [UInt8]] = (0..<ptt_page_file_count()).reduce(into: [:]) { files, number in
        let file = ptt_page_file_at(number)
        guard let name = file.name else { return }
        files[String(cString: name)] = Array(UnsafeBufferPointer(start: file.bytes, count: file.count))
    }
}
