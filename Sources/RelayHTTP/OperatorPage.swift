// The operator's page, as it is in Page/.

/// A page without parts from elsewhere.
enum OperatorPage {
    /// Nothing is loaded or sent but to the relay itself; the page's own style and script are in it.
    static let contentSecurityPolicy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        + "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

    /// The HTML.
    static let text = String(decoding: PackageResources.operator_html, as: UTF8.self)
}
