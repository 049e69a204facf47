"""Templates for make_template_golden.py: whole ones in the manner of the model families, and snippets
that each show one thing."""

FAMILIES = {}

FAMILIES["chatml"] = r"""{%- for message in messages -%}
{{ '<|im_start|>' + message.role + '\n' + message['content'] + '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\n' }}
{%- endif -%}
"""

FAMILIES["smollm2"] = (
    "{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou help.<|im_end|>\\n' }}{% endif %}"
    "{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

FAMILIES["zephyr"] = r"""{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
"""

FAMILIES["mistral"] = r"""{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}

{#- Turns must alternate. #}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("Roles must alternate, but found " + message.role + " at " + ns.index|string) }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}{{ tools|tojson }}{{- "][/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] in ("tool_results", "tool") %}
        {{- '[TOOL_RESULTS] {"content": ' + message.content|string + "}[/TOOL_RESULTS]" }}
    {%- else %}
        {{- raise_exception("Unknown role " ~ message.role) }}
    {%- endif %}
{%- endfor %}
"""

FAMILIES["llama-2"] = (
    "{% if messages[0]['role'] == 'system' %}{% set rest = messages[1:] %}"
    "{% set system = messages[0]['content'] %}{% else %}{% set rest = messages %}"
    "{% set system = false %}{% endif %}{% for m in rest %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if loop.index0 == 0 and system != false %}"
    "{% set content = '<SYS>\\n' + system + '\\n</SYS>\\n\\n' + m['content'] %}"
    "{% else %}{% set content = m['content'] %}{% endif %}"
    "{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif m['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}"
    "{% endif %}{% endfor %}")

FAMILIES["llama-3"] = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ "
    "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")

FAMILIES["llama-3.2"] = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message comes out, to be put first. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Knowledge ends: December 2023\n" }}
{{- "Today: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "Functions you may call:\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("No first user message to put the tools into") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

FAMILIES["qwen2.5"] = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are an assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are an assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

FAMILIES["qwen3"] = r"""{%- set ns = namespace(multi_step=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|im_start|>assistant\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {{- '<tool_response>' ~ content ~ '</tool_response>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}
"""

FAMILIES["gemma3"] = r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("user and assistant must take turns") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>
' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
"""

FAMILIES["gemma4"] = r"""{%- macro argument(value, quoted=True) -%}
    {%- if value is string -%}
        {{- '<|"|>' + value + '<|"|>' if quoted else value -}}
    {%- elif value is boolean -%}
        {{- 'true' if value else 'false' -}}
    {%- elif value is mapping -%}
        {{- '{' -}}
        {%- set ns = namespace(found=false) -%}
        {%- for key, inner in value | dictsort -%}
            {%- if ns.found %},{% endif -%}
            {%- set ns.found = true -%}
            {{- key -}}:{{- argument(inner, quoted=quoted) -}}
        {%- endfor -%}
        {{- '}' -}}
    {%- elif value is sequence -%}
        {{- '[' -}}
        {%- for item in value -%}
            {{- argument(item, quoted=quoted) -}}
            {%- if not loop.last %},{% endif -%}
        {%- endfor -%}
        {{- ']' -}}
    {%- else -%}
        {{- value -}}
    {%- endif -%}
{%- endmacro -%}
{%- macro without_thoughts(text) -%}
    {%- set ns = namespace(result='') -%}
    {%- for part in text.split('<channel|>') -%}
        {%- if '<|channel>' in part -%}
            {%- set ns.result = ns.result + part.split('<|channel>')[0] -%}
        {%- else -%}
            {%- set ns.result = ns.result + part -%}
        {%- endif -%}
    {%- endfor -%}
    {{- ns.result | trim -}}
{%- endmacro -%}
{%- set ns = namespace(prev_message_type=None) -%}
{%- set loop_messages = messages -%}
{{- bos_token -}}
{%- if (enable_thinking is defined and enable_thinking) or tools or messages[0]['role'] in ['system', 'developer'] -%}
    {{- '<|turn>system\n' -}}
    {%- if messages[0]['role'] in ['system', 'developer'] -%}
        {{- messages[0]['content'] | trim -}}
        {%- set loop_messages = messages[1:] -%}
    {%- endif -%}
    {{- '<turn|>\n' -}}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
    {{- '<|turn>' + role + '\n' -}}
    {%- if message['tool_calls'] -%}
        {%- for tool_call in message['tool_calls'] -%}
            {{- '<|tool_call>call:' + tool_call['function']['name'] + '{' -}}
            {%- for key, value in tool_call['function']['arguments'] | dictsort -%}
                {{- key -}}:{{- argument(value, quoted=False) -}}
            {%- endfor -%}
            {{- '}<tool_call|>' -}}
        {%- endfor -%}
        {%- set ns.prev_message_type = 'tool_call' -%}
    {%- endif -%}
    {%- if message['content'] is string -%}
        {%- if role == 'model' -%}
            {{- without_thoughts(message['content']) -}}
        {%- else -%}
            {{- message['content'] | trim -}}
        {%- endif -%}
    {%- endif -%}
    {{- argument({'b': [1, 'x', true], 'A': message}) -}}
    {{- '<turn|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {%- if ns.prev_message_type != 'tool_response' -%}
        {{- '<|turn>model\n' -}}
    {%- endif -%}
{%- endif -%}
"""

FAMILIES["generation"] = r"""{%- for message in messages %}
{%- if message.role == 'assistant' %}
<|a|>{% generation %}{% set tail = '</a>' %}{{ message.content }}{{ tail }}{% endgeneration %}{{ tail }}
{%- else %}
<|{{ message.role[0] }}|>{{ message.content }}
{%- endif %}
{%- endfor %}"""

SNIPPETS = [
    # white space around tags
    "a\n{% if true %}\nb\n{% endif %}\nc\n",
    "a\n  {% if true %}  \n  b\n  {% endif %}\n  c",
    "a\n  {%- if true -%}  \n  b\n  {%- endif -%}\n  c",
    "a\n  {%+ if true +%}\n  b\n  {%+ endif +%}\n  c",
    "  {% if true %}x{% endif %}  \n",
    "  {{ 1 }}  \n  {{- 2 -}}  \n  {{ 3 }}\n\n",
    "a {# c #}\n b",
    "a\n  {# c #}\n b",
    "a\n  {#- c -#}\n b",
    "a\n  {#+ c +#}\n b",
    "{#- a -#}\n\n{#-#}x{##}y{#- -#} z",
    "a\n\t {% set x = 1 %}\t\n\tb",
    "a {% set x = 1 %}\nb",
    "{% set x = 1 %}\n\n\nb\n\n",
    "{% raw %}\n {{ x }} {% if %} {# y #}\n{% endraw %}\nz",
    "a\n  {%- raw -%}\n  {{ x }}\n  {%- endraw -%}\n  b",
    "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\n  b",
    "a\r\nb\rc\n{{ 'x\r\ny' }}\r\n",
    "\u00a0{% if true %}\u00a0x{%- endif %}\n\u2003{% set a=1 %}y",
    "{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}",
    "{%for i in[1,2]%}{{i}}{%endfor%}",
    "{%- for i in [1, 2] %}\n    {{- i }},\n{%- endfor %}\nend",
    "\n\n{% if false %}{% endif %}\n",
    "{{ '{{' }} {{ '%}' }} { { } } {a} {%- if true %} # {%+ endif %}",
    "x{{ 5-}}  y {{ -3 }} z",
    "{{ {'a': {'b': 1}}}}",
    "a{% if true -%}\n\n b{% endif %}",
    # literals and printing
    "{{ 1 }} {{ 1.0 }} {{ 1e20 }} {{ 1.5e-7 }} {{ 123456789.125 }} {{ 1_000 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }}",
    "{{ true }} {{ False }} {{ none }} {{ None }} {{ True }}",
    "{{ 'a' \"b\" 'c' }} {{ 'it''s' }} {{ \"it's\" }}",
    r"{{ 'a\n\t\'\"\\ \x41 \u00e9 \101 \q \U0001f642' }}",
    "{{ [1, 'a', 2.5, none, true, [], {}] }}",
    "{{ (1, 2) }} {{ (1,) }} {{ () }} {{ 1, 2 }} {{ (1) }}",
    "{{ {'a': 1, 'b': [2], 3: 'c', none: 4} }}",
    r"""{{ ["it's", 'say "x"', "both ' and \"", 'a\nb\\', 'é', '\x01\x7f'] }}""",
    "{{ messages }}",
    "{{ messages[-1] }}",
    "{{ 'é'|length }} {{ '東京🙂'|length }} {{ '東京🙂'[1:] }} {{ '東京🙂'[-1] }} {{ '東京🙂'[::-1] }}",
    "{{ -0.0 }} {{ 1e308 * 10 }} {{ -1e308 * 10 }}",
    "{{ {1: 'a', true: 'b', 1.0: 'c'} }}",
    # arithmetic
    "{{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}",
    "{{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** 0.5 }}",
    "{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ 7.5 % 2 }} {{ -7.5 % 2 }} {{ 1.1 + 2.2 }} {{ 5.0 % -3 }}",
    "{{ true + 1 }} {{ true * 3 }} {{ -true }} {{ +5 }} {{ - -5 }} {{ +2.5 }}",
    "{{ 'a' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ 'a' * -1 }}|{{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }}",
    "{{ 1 ~ 2 ~ 'a' ~ none ~ true ~ 1.5 ~ [1] }} {{ 1 + 2 ~ 3 * 2 }}",
    "{{ 1 ~ missing ~ 2 }}",
    "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}",
    "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ [1] + (2,) }}", "{{ none + 1 }}", "{{ -'a' }}", "{{ +'a' }}",
    "{{ 'a' - 'b' }}", "{{ [] * [] }}",
    # comparison and logic
    "{{ 1 == 1.0 }} {{ 1 == '1' }} {{ true == 1 }} {{ none == false }} {{ [1, 2] == [1, 2] }} {{ [1] == (1,) }}",
    "{{ {'a': 1, 'b': 2} == {'b': 2, 'a': 1} }} {{ {'a': 1} != {'a': 2} }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 < 2 == true }} {{ 3 > 2 >= 2 != 1 }}",
    "{{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ 'é' > 'z' }} {{ [1, 2] < [1, 3] }} {{ [1] < [1, 0] }} {{ (2,) > (1, 5) }}",
    "{{ 1 in [1, 2] }} {{ 3 not in [1, 2] }} {{ 'b' in 'abc' }} {{ 'a' in {'a': 1} }} {{ '' in 'x' }} {{ 1.0 in [1] }}",
    "{{ not true }} {{ not not 1 }} {{ not 1 == 2 }} {{ true and 'x' }} {{ false or 'y' }} {{ 0 or '' or none }}",
    "{{ 1 and 0 or 2 }} {{ 'a' or missing.boom }} {{ 0 and missing.boom }}",
    "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ 1 in 5 }}", "{{ 1 in 'a1' }}", "{{ [] in {} }}", "{{ {} < {} }}",
    "{{ 'yes' if 1 else 'no' }} {{ 'yes' if 0 else 'no' }} [{{ 'yes' if 0 }}] {{ 'a' if 0 else 'b' if 0 else 'c' }}",
    "{{ ('x' if false).y }}",
    # undefined
    "[{{ missing }}] [{{ messages[99] }}] [{{ messages[0].nothing }}] [{{ messages[0]['nothing'] }}]",
    "{{ missing.attribute }}", "{{ missing['x'] }}", "{{ missing[1:] }}", "{{ missing + 1 }}", "{{ 'a' + missing }}",
    "{{ missing() }}", "{{ missing < 1 }}", "{{ -missing }}", "{{ messages[0].nothing.more }}",
    "{{ missing == missing }} {{ missing == none }} {{ missing != 1 }} {{ not missing }} {{ missing in [1] }} {{ 1 in missing }}",
    "{% for x in missing %}x{% else %}none{% endfor %} {{ missing|length }} {{ missing|list }} {{ missing|upper }}|{{ missing|trim }}|{{ missing|join(',') }}|",
    "{{ missing|default('d') }} {{ ''|default('d') }}|{{ ''|default('d', true) }} {{ none|default('d') }} {{ none|d('d', boolean=true) }} {{ missing|d }}",
    "{{ none.x }}|{{ none[0] }}|{{ 1 .x }}|{{ 'abc'.x }}|{{ 'abc'[5] }}|{{ [1]['a'] }}|{{ {}[0] }}|{{ {}.x }}",
    "{{ missing|tojson }}", "{{ [missing]|tojson }}", "{{ [missing] }}", "{{ missing|int }}", "{{ [1, missing]|sum }}",
    # attributes, subscripts, slices
    "{{ messages[0].role }} {{ messages[0]['content'] }} {{ messages[1].content[0] }} {{ messages.0.role }}",
    "{{ {'items': 5}['items'] }} {{ {'items': 5}.items()|list }} {{ {'get': 1}.get('get') }} {{ {'a': 1}['keys']()|list }}",
    "{% set l = [0,1,2,3,4,5] %}{{ l[1:] }}{{ l[:2] }}{{ l[1:4] }}{{ l[::2] }}{{ l[::-1] }}{{ l[-2:] }}{{ l[:-2] }}{{ l[10:] }}{{ l[-100:2] }}{{ l[4:1:-1] }}{{ l[4:1:-2] }}{{ l[:] }}",
    "{{ 'abcdef'[1:4] }} {{ 'abcdef'[-2] }} {{ 'abcdef'[::3] }} {{ (1,2,3)[1:] }} {{ 'abc'[true] }} {{ [1,2][0.0] }}|",
    "{% set x = [1, 2] %}{{ x[::0] }}", "{% set x = {'a': 1} %}{{ x[1:] }}", "{% set x = none %}{{ x[1:] }}", "{% set x = 'a' %}{{ [1][:x] }}", "{{ 5[0] }}|", "{% set x = [1] %}{{ x[missing:] }}",
    "{{ [[1, 2], [3]][0][1] }} {{ {'a': {'b': [7]}}.a.b[0] }} {{ [1,2,3][-1] }} {{ [1][none:none:none] }}",
    "{{ {[]: 1} }}",
    # set, scopes, namespace
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in [1, 2] %}[{{ y }}]{% set y = i %}[{{ y }}]{% endfor %}",
    "{% set ns = namespace(a=1, b='x') %}{% for i in [1,2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}[{{ ns.c }}]{{ ns['a'] }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}{% set ns.a, x = 5, 6 %}{{ ns.a }}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c + d }}",
    "{% set x %}a{{ 1 }}b{% set inner = 3 %}{% endset %}{{ x }}|{{ inner }}|{{ x|length }}",
    "{% set x | upper | replace('A', 'c') %}abc{% endset %}{{ x }}",
    "{% set d = {'a': 1} %}{% set d.a = 2 %}", "{% set a, b = [1] %}", "{% set x.y = 1 %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% set a = 5 %}{{ a }}{% endwith %}[{{ a }}]",
    "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% filter upper %}abc {{ 'd' }}{% endfilter %} {% filter replace('a', 'b')|upper %}aa{% endfilter %}",
    "{% set x = 'q' %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 'r' %}{{ m() }}",
    # loops
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }};{% endfor %}",
    "{% for i in [1,2,3] %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.cycle('a', 'b') }};{% endfor %}",
    "{% for i in [] %}x{% else %}empty{% endfor %}{% for i in [1] %}x{% else %}empty{% endfor %}",
    "{% for i in range(10) if i % 2 %}{{ i }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for i in range(5) if i > 10 %}x{% else %}none{% endfor %}",
    "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(3) %}{% if j > i %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}",
    "{% for (a, (b, c)) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for a, b in ['xy'] %}{{ b }}{{ a }}{% endfor %}",
    "{% for c in 'aé🙂' %}[{{ c }}]{% endfor %}{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }}",
    "{% for i in [1] %}{{ loop.index }}{% for j in [1,2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for i in 5 %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [[1,2,3]] %}{% endfor %}",
    "{{ loop }}", "{% break %}", "{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{{ range(1, 2, 0) }}",
    "{% for i in [3, 1, 2]|sort %}{{ i }}{% endfor %}{% for i in [1, 2]|reverse %}{{ i }}{% endfor %}",
    # macros
    "{% macro m(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 2) }} {{ m(a=1, c=3) }} {{ m() }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('x') }}{{ m('x')|upper }}{{ m('x') is string }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}in{% endcall %}",
    "{% macro m(l) %}{% for i in l %}{{ caller(i, loop.index) }}{% endfor %}{% endmacro %}{% call(x, n) m(['a', 'b']) %}{{ n }}{{ x }};{% endcall %}",
    "{% macro m() %}{% set z = 1 %}{{ z }}{% endmacro %}{{ m() }}[{{ z }}]",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro outer() %}{% macro inner(x) %}<{{ x }}>{% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer() }}",
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}[{{ m(1) }}]",
    # tests
    "{{ 1 is defined }} {{ x is defined }} {{ x is not defined }} {{ x is undefined }} {{ none is none }} {{ not x is defined }}",
    "{{ 'a' is string }} {{ 1 is string }} {{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ true is integer }} {{ 1 is integer }} {{ 1.0 is float }} {{ true is boolean }} {{ 1 is boolean }}",
    "{{ {} is mapping }} {{ [] is mapping }} {{ [] is sequence }} {{ 'a' is sequence }} {{ {} is sequence }} {{ 1 is sequence }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ none is iterable }} {{ x is iterable }} {{ x is mapping }}",
    "{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 0 is false }} {{ 1 is odd }} {{ 2 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }}",
    "{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge 2 }} {{ 1 is in [1, 2] }} {{ 3 is not in [1] }} {{ 1 is sameas 1 }} {{ none is sameas none }}",
    "{{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 'aB' is lower }} {{ '1' is upper }} {{ range is callable }} {{ 1 is callable }} {{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }}",
    "{{ 1 is defined and 2 is defined or x }} {{ 'a' if x is defined else 'b' }} {{ 1 + 1 is number }}",
    "{{ 1 is nosuchtest }}", "{{ 1 is defined is defined }}",
    # filters
    "[{{ '  a b \n'|trim }}] [{{ 'xxaxx'|trim('x') }}] {{ 'aB'|upper }} {{ 'aB'|lower }} {{ 'hello wORLD-foo (bar'|title }} {{ 'hELLO wORLD'|capitalize }}",
    "{{ 'ÀÉß'|lower }} {{ 'àéîñ'|upper }} {{ 'привет Ωmega'|upper }} {{ 'ПРИВЕТ'|lower }} {{ 'ŠžŸ'|lower }} {{ 'šŽÿ'|upper }}",
    "{{ [1, 2, 3]|join }} {{ [1, 2]|join(', ') }} {{ 'abc'|join('-') }} {{ messages|join('|', attribute='role') }} {{ []|join(',') }} {{ [none, 1.5, 'a']|join(d=' ') }}",
    "{{ [3, 1, 2]|first }} {{ [3, 1, 2]|last }} {{ 'abc'|first }} {{ 'abc'|last }} [{{ []|first }}] {{ {'a': 1}|first }}",
    "{{ [1, 2]|length }} {{ {'a': 1}|length }} {{ [1, 2]|count }} {{ 'abc'|list }} {{ {'a': 1}|list }} {{ (1, 2)|list }}",
    "{{ messages|map(attribute='role')|list }} {{ ['a', 'b']|map('upper')|join }} {{ [1, 2]|map('string')|list }} {{ [{}, {'x': 1}]|map(attribute='x', default=0)|list }}",
    "{{ [{'a': {'b': 1}}]|map(attribute='a.b')|list }} {{ [[1, 2], [3, 4]]|map(attribute=1)|list }} {{ [[1, 2]]|map(attribute='0')|list }} {{ ['a-b']|map('replace', '-', '+')|list }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list|length }} {{ messages|rejectattr('role', 'eq', 'user')|list|length }} {{ messages|selectattr('role', 'in', ['user', 'system'])|list|length }}",
    "{{ [{'a': 1}, {'a': 0}, {}]|selectattr('a')|list }} {{ [{'a': 1}, {}]|selectattr('a', 'defined')|list }} {{ [{'a': 1}, {}]|rejectattr('a')|list }}",
    "{{ [1, 2, 3]|select('odd')|list }} {{ [0, 1, '', 'a']|select|list }} {{ [1, 2, 3]|reject('gt', 1)|list }} {{ [0, 1]|reject|list }} {{ [1, 2]|select('==', 2)|list }}",
    "{{ 'hello'|replace('l', 'L') }} {{ 'hello'|replace('l', 'L', 1) }} {{ 'ab'|replace('', '-') }} {{ 12321|replace(2, 'x') }} {{ 'é'|replace('', '.') }}",
    "{{ '3'|int }} {{ '3.7'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 'ff'|int(0, 16) }} {{ ' 7 '|int }} {{ none|int }} {{ true|int }} {{ '+4'|int }}",
    "{{ '3'|float }} {{ '1e3'|float }} {{ 'x'|float }} {{ 'x'|float(2.5) }} {{ 2|float }} {{ 'inf'|float }}",
    "{{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 2.9|round(method='floor') }} {{ 5|round }} {{ 2.675|round(2) }} {{ 1234.5|round(1) }}",
    "{{ -3|abs }} {{ (-3)|abs }} {{ -2.5|abs }} {{ 5|string ~ 1 }} {{ 'a'|safe }} {{ '<a href=\"x\">&\\''|e }}",
    "{{ [1, 2, 3]|sum }} {{ [1.5, 2]|sum }} {{ [{'n': 1}, {'n': 2}]|sum(attribute='n') }} {{ [1]|sum(start=10) }} {{ [3, 1, 2]|max }} {{ [3, 1, 2]|min }} [{{ []|max }}] {{ ['b', 'A']|min }}",
    "{{ [3, 1, 2]|sort }} {{ ['b', 'A', 'c']|sort }} {{ ['b', 'A']|sort(case_sensitive=true) }} {{ [1, 3, 2]|sort(reverse=true) }} {{ [{'n': 2}, {'n': 1}]|sort(attribute='n') }}",
    "{{ {'b': 1, 'A': 2, 'c': 0}|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(by='value') }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'a': 1, 'b': 2}|dictsort(reverse=true) }}",
    "{{ [1, 2, 1, 'a', 'A']|unique|list }} {{ 'abc'|reverse }} {{ [1, 2]|reverse|list }} {{ {'a': 1}|items|list }} {{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }}",
    "{{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(2, blank=true) }}|{{ 'a\nb'|indent('> ') }}|{{ 'a\n'|indent }}|",
    "{{ 'one two, three'|wordcount }} {{ 'a_b c-d'|wordcount }}",
    "{{ 'a'|nosuchfilter }}", "{{ 5|length }}", "{{ 5|join }}", "{{ [1, 'a']|sort }}", "{{ 'a'|trim(1, 2) }}", "{{ 'a'|upper('x') }}",
    "{{ -1|abs ~ 'x' }} {{ 'a' ~ 'b'|upper }} {{ ('a' ~ 'b')|upper }} {{ 'a,b'|replace(',', ' ')|upper|lower|length }}",
    "{{ none|map('upper')|list }} {{ tools|selectattr('name')|list }} {{ false|select|list }} {{ 0|reject('odd')|list }} {{ 'straße'|upper }}", "{{ 1|map('upper')|list }}", "{{ true|select|list }}",
    # JSON
    "{{ messages|tojson }}", "{{ messages|tojson(indent=2) }}", "{{ {'b': 1, 'a': [1, 2.0, none, true]}|tojson(sort_keys=true, separators=(',', ':')) }}",
    r"""{{ 'é"\\\n\t\x01\x7f/<&🙂'|tojson }} {{ 'é🙂\x7f'|tojson(ensure_ascii=true) }} {{ {1: 1, none: 2, true: 3, 1.5: 4}|tojson }}""",
    "{{ [[], {}, [[]], {'a': {}}]|tojson(indent=4) }} {{ (1, 2)|tojson }} {{ 1e20|tojson }} {{ [1]|tojson(indent='\t') }} {{ [1]|tojson(indent=0) }}",
    "{{ range|tojson }}", "{{ namespace(a=1)|tojson }}",
    # methods
    "[{{ '  a '.strip() }}] [{{ '  a '.lstrip() }}] [{{ '  a '.rstrip() }}] {{ 'xyaxy'.strip('yx') }} {{ 'aab'.lstrip('a') }} {{ 'baa'.rstrip('a') }} {{ 'ébé'.strip('é') }}",
    "{{ 'a,b,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.split(',')[-1] }} {{ ''.split() }} {{ ''.split(',') }} {{ ' a b  c '.split(none, 1) }} {{ 'a b'.split(maxsplit=1) }}",
    "{{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ 'a b'.rsplit() }} {{ 'a\nb\r\nc\n'.splitlines() }}",
    "{{ 'abc'.startswith('a') }} {{ 'abc'.endswith('c') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.endswith(('x', 'y')) }} {{ ''.startswith('') }}",
    "{{ 'abab'.replace('a', 'x') }} {{ 'abab'.replace('a', 'x', 1) }} {{ 'aB'.upper() }} {{ 'aB'.lower() }} {{ \"it's a dOg\".title() }} {{ 'hELLO'.capitalize() }}",
    "{{ 'hello'.find('l') }} {{ 'hello'.find('x') }} {{ 'hello'.rfind('l') }} {{ 'éé'.find('é') }} {{ 'éab'.find('b') }} {{ 'abab'.count('ab') }} {{ 'ab'.count('') }} {{ ', '.join(['a', 'b']) }}",
    "{{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'ab'.isalpha() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}",
    "{{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 2) }} {{ {'a': 1}.keys()|list }} {{ {'a': 1}.values()|list }} {{ {'a': 1}.items()|list }}",
    "{{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1)]) }}",
    "{{ [1].append(2) }}", "{{ {}.update({}) }}", "{{ [1].index(5) }}", "{{ 'a'.nosuch() }}", "{{ 'a,b'.split('') }}", "{{ 'a'.upper(1) }}", "{{ ','.join([1]) }}",
    "{% set parts = 'a</think>b'.split('</think>') %}{{ parts[-1].lstrip('\\n') }}{{ parts|length }}",
    # faults in the source
    "{{ 1", "{% if true %}", "{% endif %}", "{% if %}{% endif %}", "{{ }}", "{% for x %}{% endfor %}", "{# x", "{% raw %}x", "{{ 'a }}",
    "{{ (1 }}", "{{ 1) }}", "{{ [1, }}", "{{ {'a'} }}", "{{ a b }}", "{% nosuch %}", "{{ 1 + }}", "{{ a. }}", "{{ a | }}", "{{ a is }}",
    "{% set %}", "{% set 1 = 2 %}", "{% if true %}{% else %}{% elif true %}{% endif %}", "{{ @ }}", "{% macro %}{% endmacro %}", "{{ f(a=1, 2) }}",
    "{{ \u00e9 $ }}", "{% if true %}{% endfor %}", "{{ 01 }}", "{{ a[1 }}", "{% %}",
    # the rest
    "{{ bos_token ~ eos_token }}{{ add_generation_prompt }}{{ tools }}{{ documents is none }}",
    "{{ raise_exception('no') }}", "{% if false %}{{ raise_exception('no') }}{% endif %}ok",
    "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%d') }}",
    "{% if messages[0]['role'] == 'system' %}{% set offset = 1 %}{% else %}{% set offset = 0 %}{% endif %}{% for m in messages %}{% if (m['role'] == 'user') == (loop.index0 % 2 == offset) %}ok{% endif %}{% endfor %}",
    "{{ ((((((((((1)))))))))) }}{{ [[[[[[[[]]]]]]]] }}{{ not not not true }}",
    "{% if 1 %}{% if 0 %}a{% elif 0 %}b{% elif 1 %}c{% else %}d{% endif %}{% endif %}",
    "{{- messages | selectattr('role', 'ne', 'system') | map(attribute='content') | map('trim') | join('\n') -}}",
    "{% set x = messages | length > 1 and messages[1].role == 'user' %}{{ x }}",
    "{{ 'a' if messages[0].role == 'system' and not tools else 'b' }}",
    "{{ messages[0].content if messages[0].content is string else messages[0].content[0].text }}",
    "{% set found = [] %}{% for m in messages if m.role == 'user' %}{% set found = found + [m] %}{{ found|length }}{% endfor %}{{ found|length }}",
    "{{ 1 if true else 2, 3 }} {{ [1 if true else 2, 3] }} {{ {'a': 1 if false else 2} }}",
    "{% for m in messages -%}\n{{ m.role }}: {{ m.content | replace('\\n', ' ') }}\n{% endfor -%}\n done",
]
