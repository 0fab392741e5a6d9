// Names of others, made fit for one line of a widget.
import Testing

@testable import SystemUI

@Suite struct DisplayTextTests {
    @Test func `a name is shown as it is`() {
        #expect(DisplayText.line("Anna Müller 🚒 班长", fallback: "?") == "Anna Müller 🚒 班长")
    }
}
